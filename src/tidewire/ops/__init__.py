"""What an operator runs on a store: verifying, recovering, erasing."""
