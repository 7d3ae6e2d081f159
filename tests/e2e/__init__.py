"""What a person does at a terminal, done by a test."""
