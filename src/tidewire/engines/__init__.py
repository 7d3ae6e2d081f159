"""The implementations of the ports: one folder a vendor."""
