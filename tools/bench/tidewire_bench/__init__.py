"""Load on a running server, with a client of its own that checks what it measures."""
