"""Tidewire: a self-hosted messaging server. Stored once, in order, for good."""

__version__ = "0.1.0"
