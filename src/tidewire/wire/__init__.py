"""Bytes to typed values and back: frames, event records, the error table. PURE, msgspec."""
