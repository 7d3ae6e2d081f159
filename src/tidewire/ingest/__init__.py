"""The durability plane: sends are gathered into batches, appended once, then acked."""
