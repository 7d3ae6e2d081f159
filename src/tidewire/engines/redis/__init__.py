"""Routes, pushes and shared limits of a cluster on Redis: nothing in it is worth a backup."""
