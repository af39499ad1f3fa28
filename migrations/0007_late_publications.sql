-- A publication writes two rows, the counters and the day: only one that was late is in an index, too.

-- `lag_ms` is by how much the last publication was late.
DROP INDEX user_quotas_by_update;
CREATE INDEX user_quotas_late ON user_quotas(updated_at) WHERE lag_ms > 1000;
