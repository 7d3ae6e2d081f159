-- Sessions with where they are used from.

-- Of the last login or refresh; NULL for a bot, and for sessions from before this schema.
ALTER TABLE sessions ADD COLUMN address TEXT;
ALTER TABLE sessions ADD COLUMN client TEXT;
