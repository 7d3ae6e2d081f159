"""Failure and operation of the engines, beyond the contract that they share."""
