"""A cluster of real processes on the real servers of the stack. Slow, all of it."""
