-- The id of a message carries its sequence, so it is found without an index. Only the ids of older
-- rows, and those of sequences that do not fit into an id (domain.ids.PLACE_MAX), are in one. All rows
-- that are there have no is_placed, so the index stays as it is (engines/sqlite/columns.py).
ALTER TABLE messages ADD COLUMN is_placed INTEGER;
DROP INDEX messages_by_id;
CREATE UNIQUE INDEX messages_by_id ON messages (message_id)
    WHERE is_placed IS NULL OR sequence > 1099511627775;
