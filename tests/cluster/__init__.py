"""Tests of a cluster of real processes on the real servers of the stack. All of them are slow."""
