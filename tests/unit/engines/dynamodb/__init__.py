"""Unit tests of the PURE modules of the DynamoDB engine."""
