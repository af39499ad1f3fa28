-- JSON object: calls that passed, by the endpoint whose own limit let them.
ALTER TABLE daily_usage ADD COLUMN passed_by TEXT NOT NULL DEFAULT '{}';
