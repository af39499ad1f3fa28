-- The authoritative record: plans, users, keys and what was used.
-- NULL is unlimited (or "all"), 0 is none. Instants ending in `_ms` are Unix milliseconds.

CREATE TABLE plans (
  plan_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  daily_limit INTEGER,
  monthly_token_limit INTEGER,
  max_tokens_per_request INTEGER,
  max_tokens_mode TEXT NOT NULL DEFAULT 'reject',
  allowed_models TEXT,                         -- JSON array of names, or NULL for all
  rate TEXT,                                   -- JSON {"capacity","refill_per_minute"}
  window TEXT NOT NULL DEFAULT 'default',      -- 'default' (the settings), JSON null or {"max_requests","minutes"}
  tokens_per_minute INTEGER,
  max_concurrent INTEGER,
  endpoints TEXT NOT NULL DEFAULT '[]',        -- JSON array of {"name","max_requests","per_seconds"}
  reset TEXT NOT NULL DEFAULT '{}',            -- JSON {"mode","timezone","billing_day"}
  over_quota TEXT NOT NULL DEFAULT '{}',       -- JSON {"strategy","degrade_model","degrade_daily_limit","queue_limit"}
  notify_at TEXT NOT NULL DEFAULT '[0.8,1.0]',
  on_outage TEXT NOT NULL DEFAULT 'open',
  shadow INTEGER NOT NULL DEFAULT 0,
  version INTEGER NOT NULL DEFAULT 1,
  updated_at TEXT NOT NULL
);

CREATE TABLE users (
  user_id TEXT PRIMARY KEY,
  plan_id TEXT NOT NULL DEFAULT 'free' REFERENCES plans(plan_id),
  status TEXT NOT NULL DEFAULT 'active',       -- active | blocked
  email TEXT COLLATE NOCASE,
  webhook_url TEXT,
  overrides TEXT NOT NULL DEFAULT '{}',        -- JSON, any plan field but plan_id and name
  version INTEGER NOT NULL DEFAULT 1,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL
);
CREATE INDEX users_by_plan ON users(plan_id);
CREATE INDEX users_by_email ON users(email);

CREATE TABLE api_keys (
  key_id TEXT PRIMARY KEY,
  key_hash TEXT NOT NULL UNIQUE,               -- hex HMAC-SHA-256(KEY_PEPPER, key); the key itself is nowhere
  last4 TEXT NOT NULL,
  user_id TEXT NOT NULL REFERENCES users(user_id) ON DELETE CASCADE,
  name TEXT,
  scope TEXT NOT NULL DEFAULT 'user',          -- user | service
  created_at TEXT NOT NULL,
  expires_at_ms INTEGER,
  revoked_at_ms INTEGER
);
CREATE INDEX api_keys_by_user ON api_keys(user_id);

-- What each user has used of the current day and month: absolute totals, published by the user's account.
-- `seq` only grows; a repeated or late write changes nothing.
CREATE TABLE user_quotas (
  user_id TEXT PRIMARY KEY,
  plan TEXT NOT NULL DEFAULT 'free',
  daily_limit INTEGER,
  used_today INTEGER NOT NULL DEFAULT 0,
  reset_at TEXT NOT NULL,
  monthly_token_limit INTEGER,
  tokens_used_this_month INTEGER NOT NULL DEFAULT 0,
  month_reset_at TEXT NOT NULL,
  day_since_ms INTEGER NOT NULL,
  month_since_ms INTEGER NOT NULL,
  seq INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL
);

CREATE TABLE daily_usage (
  user_id TEXT NOT NULL,
  date TEXT NOT NULL,                          -- local date of the plan's time zone
  plan_id TEXT NOT NULL,
  calls INTEGER NOT NULL DEFAULT 0,
  rejected INTEGER NOT NULL DEFAULT 0,
  degraded INTEGER NOT NULL DEFAULT 0,
  queued INTEGER NOT NULL DEFAULT 0,
  failed_open INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0,
  estimated_calls INTEGER NOT NULL DEFAULT 0,
  refused_by TEXT NOT NULL DEFAULT '{}',       -- JSON {policy: refusals}
  seq INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (user_id, date)
) WITHOUT ROWID;
CREATE INDEX daily_usage_by_date ON daily_usage(date);

CREATE TABLE models (
  model TEXT PRIMARY KEY,
  upstream TEXT NOT NULL,                      -- openai | anthropic | workers-ai | mock
  base_url TEXT,
  secret_name TEXT,
  upstream_model TEXT,
  aliases TEXT NOT NULL DEFAULT '[]',
  version INTEGER NOT NULL DEFAULT 1,
  updated_at TEXT NOT NULL
);

CREATE TABLE routes (
  route_id TEXT PRIMARY KEY,
  path_prefix TEXT NOT NULL UNIQUE,
  methods TEXT,                                -- JSON array, or NULL for all
  upstream_url TEXT NOT NULL,
  endpoint TEXT,
  cost INTEGER NOT NULL DEFAULT 1,
  timeout_ms INTEGER NOT NULL DEFAULT 30000,
  version INTEGER NOT NULL DEFAULT 1,
  updated_at TEXT NOT NULL
);

CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  before TEXT,
  after TEXT
);
-- The plans every installation begins with; edit or delete them like any other.
INSERT INTO plans (plan_id, name, daily_limit, monthly_token_limit, max_tokens_per_request, allowed_models, rate, window, updated_at) VALUES
  ('free', 'Free', 10, 100000, 1000, NULL, '{"capacity":10,"refill_per_minute":10}', 'default', '2026-01-01T00:00:00Z'),
  ('pro', 'Pro', 1000, 10000000, 8000, NULL, '{"capacity":60,"refill_per_minute":60}', 'default', '2026-01-01T00:00:00Z'),
  ('enterprise', 'Enterprise', NULL, NULL, NULL, NULL, '{"capacity":600,"refill_per_minute":600}', 'null', '2026-01-01T00:00:00Z'),
  ('internal', 'Internal', NULL, NULL, NULL, NULL, NULL, 'null', '2026-01-01T00:00:00Z');
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
-- What the operator watches, and calls that passed while the account store was out.

-- By how much the last publication was late. Only one that was is in an index: every row that is written costs.
ALTER TABLE user_quotas ADD COLUMN lag_ms INTEGER NOT NULL DEFAULT 0;
CREATE INDEX user_quotas_late ON user_quotas(updated_at) WHERE lag_ms > 1000;

-- Sums over the days that are folded: long past, and added up once. Counters go on when their rows are deleted.
CREATE TABLE usage_folded (
  plan_id TEXT PRIMARY KEY,
  calls INTEGER NOT NULL,
  rejected INTEGER NOT NULL,
  degraded INTEGER NOT NULL,
  queued INTEGER NOT NULL,
  failed_open INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  estimated_calls INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE refusals_folded (
  plan_id TEXT NOT NULL,
  reason TEXT NOT NULL,
  refused INTEGER NOT NULL,
  PRIMARY KEY (plan_id, reason)
) WITHOUT ROWID;

-- Single values: how far the folding, the reconciliation and so on have come.
CREATE TABLE observe_state (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- The sums of all plans, as they stood at one moment.
CREATE TABLE snapshots (
  at_ms INTEGER PRIMARY KEY,
  plans TEXT NOT NULL                          -- JSON {plan: {"calls","refused","failed_open"}}
);

CREATE TABLE alerts (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,                          -- refusal_rate | failed_open | dead_letter | ledger_lag | drift
  subject TEXT NOT NULL,
  opened_at_ms INTEGER NOT NULL,
  closed_at_ms INTEGER,                        -- NULL while it is open
  detail TEXT NOT NULL,                        -- JSON object
  told INTEGER NOT NULL DEFAULT 0              -- 1: the webhook has heard of its present state
) WITHOUT ROWID;
CREATE UNIQUE INDEX alerts_open ON alerts(kind, subject) WHERE closed_at_ms IS NULL;

-- Where an account and this record had come apart, and what was done about it.
CREATE TABLE drifts (
  id TEXT PRIMARY KEY,
  user_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  detail TEXT NOT NULL,                        -- JSON object
  at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX drifts_by_time ON drifts(at_ms);

-- The id is the operation under which the account books them, so that each is booked once.
CREATE TABLE open_calls (
  id TEXT PRIMARY KEY,
  user_id TEXT NOT NULL,
  calls INTEGER NOT NULL,
  prompt INTEGER NOT NULL,
  completion INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  booked_at_ms INTEGER                         -- NULL until the account has booked them
) WITHOUT ROWID;
CREATE INDEX open_calls_unbooked ON open_calls(at_ms) WHERE booked_at_ms IS NULL;
CREATE INDEX open_calls_by_time ON open_calls(at_ms);
-- How long calls waited, and what an account that lost its storage could not know.

-- JSON object: what for (account, upstream), then calls by the upper end of their bucket in milliseconds, and the sum.
ALTER TABLE daily_usage ADD COLUMN latency TEXT NOT NULL DEFAULT '{}';

-- Sums over the days that are folded.
CREATE TABLE latency_folded (
  stage TEXT NOT NULL,
  bucket TEXT NOT NULL,
  total INTEGER NOT NULL,
  PRIMARY KEY (stage, bucket)
) WITHOUT ROWID;

-- What the counters of a user don't tell, as the account packs it, in base64: top-ups, calls to the cheaper model.
ALTER TABLE user_quotas ADD COLUMN beyond TEXT NOT NULL DEFAULT '';
-- JSON object: calls that passed, by the endpoint whose own limit let them.
ALTER TABLE daily_usage ADD COLUMN passed_by TEXT NOT NULL DEFAULT '{}';
