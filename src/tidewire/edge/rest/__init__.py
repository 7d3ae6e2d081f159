"""REST: the endpoints of contract-facts 3.2, on Litestar, over the planes' services."""
