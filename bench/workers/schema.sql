-- The tables of both Hono limiters.
CREATE TABLE users (
  user_id TEXT PRIMARY KEY,
  key_hash TEXT NOT NULL UNIQUE,
  daily_limit INTEGER NOT NULL
);
CREATE TABLE usage (
  user_id TEXT NOT NULL,
  day TEXT NOT NULL,
  calls INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (user_id, day)
) WITHOUT ROWID;
