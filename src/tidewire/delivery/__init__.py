"""Delivered and read positions, which only move forward, and the ticks they make."""
