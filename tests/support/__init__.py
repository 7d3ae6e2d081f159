"""Shared by the tests: builders, fakes, checkers. Holds no test."""
