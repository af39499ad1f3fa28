-- The plans every installation begins with; edit or delete them like any other.
INSERT INTO plans (plan_id, name, daily_limit, monthly_token_limit, max_tokens_per_request, allowed_models, rate, window, updated_at) VALUES
  ('free', 'Free', 10, 100000, 1000, NULL, '{"capacity":10,"refill_per_minute":10}', 'default', '2026-01-01T00:00:00Z'),
  ('pro', 'Pro', 1000, 10000000, 8000, NULL, '{"capacity":60,"refill_per_minute":60}', 'default', '2026-01-01T00:00:00Z'),
  ('enterprise', 'Enterprise', NULL, NULL, NULL, NULL, '{"capacity":600,"refill_per_minute":600}', 'null', '2026-01-01T00:00:00Z'),
  ('internal', 'Internal', NULL, NULL, NULL, NULL, NULL, 'null', '2026-01-01T00:00:00Z');
