"""The connection plane: who may connect, what is said on a connection, and pushes to many."""
