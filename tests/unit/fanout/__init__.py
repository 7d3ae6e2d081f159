"""Tests of the fan-out plane."""
