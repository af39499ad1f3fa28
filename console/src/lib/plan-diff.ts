import { diffValues, same, type Change } from './diff';
import { ownWindow, RULE_NAMES, type Plan, type PlanRules, type RuleName, type WindowRule } from './plan';

/** What a change means to the users of the plan. */
export type Effect = 'tighter' | 'looser' | 'different';

export interface PlanChange extends Change {
  effect: Effect;
}

/** What would change, leaf by leaf, and whether users get less or more by it. */
export function diffPlans(before: Plan, after: Plan): PlanChange[] {
  return diffValues(before, after).map((change) => ({ ...change, effect: effectOf(change) }));
}

/** The body of the `PATCH`: whole top-level fields, and only those that differ. */
export function patchOf(before: Plan, after: Plan): Partial<Plan> {
  const names = (['name', ...RULE_NAMES] as const).filter((name) => !same(before[name], after[name]));
  return Object.fromEntries(names.map((name) => [name, after[name]]));
}

/** A policy that the change lowers, and its new limit: users may be above it at once. */
export interface LoweredPolicy {
  policy: string;
  rule: RuleName;
  limit: number;
}

export function loweredPolicies(before: PlanRules, after: PlanRules): LoweredPolicy[] {
  const candidates: [string, RuleName, number | null, number | null][] = [
    ['daily', 'daily_limit', before.daily_limit, after.daily_limit],
    ['monthly-tokens', 'monthly_token_limit', before.monthly_token_limit, after.monthly_token_limit],
    ['window', 'window', ownWindow(before.window)?.max_requests ?? null, ownWindow(after.window)?.max_requests ?? null],
  ];
  return candidates.flatMap(([policy, rule, was, now]) =>
    now !== null && now < (was ?? Infinity) ? [{ policy, rule, limit: now }] : [],
  );
}

const LIMITS = new Set([
  'daily_limit',
  'monthly_token_limit',
  'max_tokens_per_request',
  'tokens_per_minute',
  'max_concurrent',
  'rate.capacity',
  'rate.refill_per_minute',
  'window.max_requests',
  'over_quota.degrade_daily_limit',
  'over_quota.queue_limit',
]);

function effectOf({ path, before, after }: Change): Effect {
  if (LIMITS.has(path)) return compare(before, after);
  switch (path) {
    case 'allowed_models':
      return compareSets(before, after);
    case 'rate':
      return before === null ? 'tighter' : 'looser';
    case 'window':
      return compareWindows(before as WindowRule, after as WindowRule);
    case 'window.minutes':
      return Number(after) > Number(before) ? 'tighter' : 'looser';
    case 'shadow':
      return after === true ? 'looser' : 'tighter';
    case 'on_outage':
      return after === 'open' ? 'looser' : 'tighter';
    default:
      return 'different';
  }
}

function compare(before: unknown, after: unknown): Effect {
  const was = before === null ? Infinity : Number(before);
  const now = after === null ? Infinity : Number(after);
  return now < was ? 'tighter' : 'looser';
}

// What the gateway is set to is not known here, only that it is no looser than none at all.
function compareWindows(before: WindowRule, after: WindowRule): Effect {
  if (before === null) return 'tighter';
  return after === null ? 'looser' : 'different';
}

// `null` allows every model. A list that both gains and loses names is neither more nor less.
function compareSets(before: unknown, after: unknown): Effect {
  if (before === null) return 'tighter';
  if (after === null) return 'looser';
  if (!Array.isArray(before) || !Array.isArray(after)) return 'different';
  const lost = before.some((model) => !after.includes(model));
  const gained = after.some((model) => !before.includes(model));
  if (lost === gained) return 'different';
  return lost ? 'tighter' : 'looser';
}
