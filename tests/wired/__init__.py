"""A whole server as `runtime/bootstrap.py` wires it, in this process, behind real sockets."""
