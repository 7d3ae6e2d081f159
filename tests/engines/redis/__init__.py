"""The Redis engine on a real Redis."""
