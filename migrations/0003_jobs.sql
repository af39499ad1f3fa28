-- Calls that are done later, and what users are told.

-- A job's body lies here; the queue carries only its id. There is no foreign key to `users`: the job of a
-- deleted user ends failed instead of being gone without a word.
CREATE TABLE jobs (
  job_id TEXT PRIMARY KEY,
  user_id TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'queued',       -- queued | running | succeeded | failed | cancelled | expired
  created_at_ms INTEGER NOT NULL,
  not_before_ms INTEGER NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  finished_at_ms INTEGER,                      -- NULL while queued or running
  attempts INTEGER NOT NULL DEFAULT 0,         -- runs that got as far as the provider
  round INTEGER NOT NULL DEFAULT 0,            -- runs that were given back; each is charged under an id of its own
  ticket INTEGER NOT NULL DEFAULT 0,           -- of the newest message; 0: the queue has not confirmed one yet
  claim TEXT,                                  -- of the consumer that runs it
  lease_until_ms INTEGER NOT NULL DEFAULT 0,   -- until when that consumer may
  closed INTEGER NOT NULL DEFAULT 0,           -- 1: settled, and the user is told
  prompt_tokens INTEGER,
  completion_tokens INTEGER,
  estimated INTEGER,
  key_id TEXT,
  plan_claim TEXT,
  path TEXT NOT NULL,                          -- of the API it was sent to
  endpoint TEXT NOT NULL,                      -- name by which a plan limits that API
  headers TEXT NOT NULL DEFAULT '[]',          -- JSON array of [name, value]: what a provider is told of the caller
  error TEXT,                                  -- JSON {"message","type","code"}
  body TEXT NOT NULL,
  result TEXT
);
CREATE INDEX jobs_by_user ON jobs(user_id, created_at_ms);
CREATE INDEX jobs_waiting ON jobs(user_id) WHERE finished_at_ms IS NULL;
CREATE INDEX jobs_by_finish ON jobs(finished_at_ms, not_before_ms);

CREATE TABLE notifications (
  notification_id TEXT PRIMARY KEY,            -- made from what it tells, so that telling it twice is telling it once
  user_id TEXT NOT NULL REFERENCES users(user_id) ON DELETE CASCADE,
  type TEXT NOT NULL,
  data TEXT NOT NULL,                          -- JSON object
  created_at_ms INTEGER NOT NULL,
  read_at_ms INTEGER
);
CREATE INDEX notifications_by_user ON notifications(user_id, created_at_ms);

CREATE TABLE deliveries (
  notification_id TEXT NOT NULL REFERENCES notifications(notification_id) ON DELETE CASCADE,
  channel TEXT NOT NULL,                       -- webhook | email
  status TEXT NOT NULL DEFAULT 'pending',      -- pending | delivered | failed
  attempts INTEGER NOT NULL DEFAULT 0,
  next_attempt_at_ms INTEGER NOT NULL,
  last_answer TEXT,
  PRIMARY KEY (notification_id, channel)
) WITHOUT ROWID;
CREATE INDEX deliveries_pending ON deliveries(next_attempt_at_ms) WHERE status = 'pending';

-- Messages no consumer could do anything with.
CREATE TABLE dead_letters (
  message_id TEXT PRIMARY KEY,
  queue TEXT NOT NULL,
  body TEXT NOT NULL,
  reason TEXT NOT NULL,
  at_ms INTEGER NOT NULL
) WITHOUT ROWID;
