"""What the planes need from the world, as small Protocols whose docstrings are the contract."""
