-- A checksum of every message (docs/decisions/0019). NULL: the row was broken when it was added.
ALTER TABLE messages ADD COLUMN checksum INTEGER;
