"""Tests that kill processes and cut the power: nothing acknowledged may be missing."""
