"""What stands behind the ports: one file a port and a vendor."""
