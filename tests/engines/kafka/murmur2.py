"""Murmur2 as Kafka's Java client computes it, written down once more to check the vendor's."""

MULTIPLIER = 0x5BD1E995
SEED = 0x9747B28C
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as a signed number of 32 bits."""
    value = SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    value ^= value >> 15
    return value - (1 << 32) if value >> 31 else value


def bucket(chat_id: str) -> int:
    return (murmur2(chat_id.encode()) & 0x7FFFFFFF) % 4096
