"""The fan-out plane: from what was committed to the connections of those whom it concerns."""
