"""The DynamoDB engine: the storage port for any number of processes on one database.

Sequencing is the two phases of ADR-004, batched and fenced (DESIGN 4): the numbers come from the
counter row, the order from the head row, which every commit moves from where it has seen it.
"""

from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.storage import DynamoStorage

__all__ = ["DynamoOptions", "DynamoStorage"]
