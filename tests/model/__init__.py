"""Stateful hypothesis tests: an engine next to a simple model."""
