"""Accounts: people, their devices and sessions, passwords and tokens."""
