-- What the operator watches, and calls that passed while the account store was out.

-- How long the oldest change of the last publication had waited for it.
ALTER TABLE user_quotas ADD COLUMN lag_ms INTEGER NOT NULL DEFAULT 0;
CREATE INDEX user_quotas_by_update ON user_quotas(updated_at);

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
