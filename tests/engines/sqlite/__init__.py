"""The SQLite engine: what goes wrong, and what it costs."""
