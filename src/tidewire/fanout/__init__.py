"""The fan-out plane: from commits to the connections of the users whom they concern."""
