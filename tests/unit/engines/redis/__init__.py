"""Unit tests of the PURE modules of the Redis engine."""
