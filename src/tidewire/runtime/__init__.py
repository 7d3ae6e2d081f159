"""Configuration, wiring and life cycle: the only room that knows all others."""
