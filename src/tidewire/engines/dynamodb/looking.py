"""Tables from outside, synchronously and at an operator's pace: for inspection and repair.

Reads whole tables, which no server does. The vendor's own retries are on: nobody waits for this.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.errors import code_of, translated
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row, Value, Write

ATTEMPTS_MAX: Final = 5
KEYS_PER_GET_MAX: Final = 100


class Tables:
    """The tables of one store, to be read row by row, each strongly."""

    def __init__(self, options: DynamoOptions) -> None:
        config = Config(retries={"total_max_attempts": ATTEMPTS_MAX, "mode": "standard"})
        self._prefix = options.table_prefix
        self._client = get_session().create_client(
            "dynamodb", config=config, **options.client_arguments()
        )

    def close(self) -> None:
        self._client.close()

    def call(self, operation: str, table: str | None = None, **request: Any) -> dict[str, Any]:
        if table is not None:
            request["TableName"] = self._prefix + table
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**request)
        except ClientError as error:
            ours = translated(error)
            if ours is error:
                raise StoreUnusable(f"the database refuses to answer ({code_of(error)})") from error
            raise ours from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"the database does not answer: {error}") from error
        return answer

    def count(self, table: str) -> int:
        """About how many rows there are, as the database last counted."""
        described = self.call("describe_table", table)
        count: int = described["Table"]["ItemCount"]
        return count

    def get(self, table: str, key: Mapping[str, Value]) -> Row | None:
        answer = self.call("get_item", table, Key=rows.pack(key), ConsistentRead=True)
        return rows.unpack(answer["Item"]) if "Item" in answer else None

    def get_many(
        self, table: str, keys: Sequence[Mapping[str, Value]]
    ) -> dict[tuple[Any, ...], Row]:
        """Rows by their keys; those that are not there are left out."""
        found: dict[tuple[Any, ...], Row] = {}
        name, names = self._prefix + table, schema.BY_NAME[table].keys
        pending = [rows.pack(key) for key in keys]
        while pending:
            chunk, pending = pending[:KEYS_PER_GET_MAX], pending[KEYS_PER_GET_MAX:]
            wanted = {name: {"Keys": chunk, "ConsistentRead": True}}
            answer = self.call("batch_get_item", RequestItems=wanted)
            for item in answer["Responses"].get(name, []):
                row = rows.unpack(item)
                found[tuple(row[key] for key in names)] = row
            pending += answer.get("UnprocessedKeys", {}).get(name, {}).get("Keys", [])
        return found

    def newest_message(self, chat_id: str) -> Row | None:
        """The message of a chat with the highest number."""
        answer = self.call(
            "query",
            schema.MESSAGES,
            KeyConditionExpression="#chat_id = :chat",
            ExpressionAttributeNames={"#chat_id": "chat_id"},
            ExpressionAttributeValues={":chat": rows.pack_value(chat_id)},
            ScanIndexForward=False,
            Limit=1,
            ConsistentRead=True,
        )
        return rows.unpack(answer["Items"][0]) if answer["Items"] else None

    def write(self, write: Write) -> None:
        """One write that is the same when done twice. Raises ConditionFailed."""
        [(kind, body)] = write.items()
        operation = {"Put": "put_item", "Delete": "delete_item"}[kind]
        self.call(operation, **(body | {"TableName": self._prefix + body["TableName"]}))

    def query(
        self, table: str, partition: Value, *, between: tuple[int, int] | None = None
    ) -> Iterator[list[Row]]:
        """The rows of a partition by their sort key, in chunks of at most a megabyte."""
        keys = schema.BY_NAME[table]
        condition = f"#{keys.partition} = :partition"
        values: dict[str, Value] = {"partition": partition}
        if between is not None:
            condition += f" AND #{keys.sort} BETWEEN :low AND :high"
            values["low"], values["high"] = between
        yield from self._pages(
            "query",
            table,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=rows.names_in(condition),
            ExpressionAttributeValues={f":{n}": rows.pack_value(v) for n, v in values.items()},
            ConsistentRead=True,
        )

    def scan(self, table: str, *, index: str | None = None) -> Iterator[list[Row]]:
        """All rows, in no order. An index lags a little behind its table."""
        request = {"ConsistentRead": True} if index is None else {"IndexName": index}
        yield from self._pages("scan", table, **request)

    def _pages(self, operation: str, table: str, **request: Any) -> Iterator[list[Row]]:
        while True:
            answer = self.call(operation, table, **request)
            if answer["Items"]:
                yield [rows.unpack(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
