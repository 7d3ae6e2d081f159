"""The promised surface: REST through the real application, on the memory engine."""
