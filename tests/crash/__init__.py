"""Processes killed and power cut: nothing acknowledged may be missing."""
