-- Messages that change (docs/decisions/0023). An entry that is no message names its target; what only
-- some entries have stands in extra, as JSON: kind, emoji, is_on, count, reason, reply_to, mentions.
-- deleted_by: the entry that erased this one's content. message_before: of an entry that is no
-- message, the last message before it; so many reactions in a row are passed over in one step.
ALTER TABLE messages ADD COLUMN target INTEGER;
ALTER TABLE messages ADD COLUMN extra TEXT;
ALTER TABLE messages ADD COLUMN deleted_by INTEGER;
ALTER TABLE messages ADD COLUMN message_before INTEGER;

-- The edits of each message that is not deleted. The last one says what the message is now.
CREATE TABLE edits (
    chat_id  TEXT    NOT NULL,
    target   INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (chat_id, target, sequence)
) STRICT, WITHOUT ROWID;

-- The reaction of each user and emoji that counts now, set or taken back, with the entry it is of.
-- Those of a message that is deleted are gone.
CREATE TABLE reactions (
    chat_id  TEXT    NOT NULL,
    target   INTEGER NOT NULL,
    emoji    TEXT    NOT NULL,
    user_id  TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    is_on    INTEGER NOT NULL CHECK (is_on IN (0, 1)),
    PRIMARY KEY (chat_id, target, emoji, user_id)
) STRICT, WITHOUT ROWID;

-- Who is mentioned where, by user; '@all' for all members.
CREATE TABLE mentions (
    user_id   TEXT    NOT NULL,
    chat_id   TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    sender_id TEXT    NOT NULL,
    PRIMARY KEY (user_id, chat_id, sequence)
) STRICT, WITHOUT ROWID;
