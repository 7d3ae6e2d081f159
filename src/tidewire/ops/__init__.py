"""What an operator runs: verify, recover, backup, restore, bench."""
