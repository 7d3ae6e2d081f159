"""Tests of the terminal: what it shows, and in which words."""
