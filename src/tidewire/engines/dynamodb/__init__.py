"""The DynamoDB engine: the storage port for any number of processes on one database.

Sequencing is the two phases of ADR-004, batched and fenced: the numbers come from the
counter row, the order from the head row, which every commit moves from where it has seen it.

Nothing is imported here: the settings of this engine are read by installations without its vendor.
"""
