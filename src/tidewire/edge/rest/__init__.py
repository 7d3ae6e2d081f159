"""REST: the endpoints, on Litestar, over the planes' services."""
