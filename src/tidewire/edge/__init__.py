"""The edge: sockets, and the vendors that own them (uvicorn, picows, Litestar)."""
