"""Tests of the PURE parts of the edge."""
