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
