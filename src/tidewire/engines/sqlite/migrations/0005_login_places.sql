-- Where an account got in before: marks of devices and addresses (domain/login_places), the last
-- used first, one space between them. A login from there is not counted with those of strangers.
ALTER TABLE credentials ADD COLUMN known_places TEXT NOT NULL DEFAULT '';
