"""Tests of the edge with real sockets."""
