"""Unit tests of the PURE modules of the SQLite engine."""
