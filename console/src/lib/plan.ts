import { asArray, asNumber, asRecord, asText, oneOf } from './read';

/** What a plan grants. `null` means unlimited (of models: all), `0` and `[]` mean none. */
export interface PlanRules {
  daily_limit: number | null;
  monthly_token_limit: number | null;
  max_tokens_per_request: number | null;
  max_tokens_mode: 'reject' | 'clamp';
  allowed_models: string[] | null;
  rate: { capacity: number; refill_per_minute: number } | null;
  window: WindowRule;
  tokens_per_minute: number | null;
  max_concurrent: number | null;
  endpoints: EndpointLimit[];
  reset: { mode: 'calendar' | 'rolling'; timezone: string; billing_day: number };
  over_quota: OverQuota;
  notify_at: number[];
  on_outage: 'open' | 'closed';
  shadow: boolean;
}

/** The sliding window: a plan's own, none at all (`null`), or the one the gateway is set to. */
export type WindowRule = { max_requests: number; minutes: number } | null | 'default';

export interface EndpointLimit {
  name: string;
  max_requests: number;
  per_seconds: number;
}

export interface OverQuota {
  strategy: 'reject' | 'degrade' | 'queue';
  degrade_model: string | null;
  degrade_daily_limit: number | null;
  queue_limit: number | null;
}

export interface Plan extends PlanRules {
  plan_id: string;
  name: string;
}

export type RuleName = keyof PlanRules;
export type Overrides = Partial<PlanRules>;

/** The rules in the order every form and comparison shows them. */
export const RULE_NAMES = [
  'daily_limit',
  'monthly_token_limit',
  'max_tokens_per_request',
  'max_tokens_mode',
  'allowed_models',
  'rate',
  'window',
  'tokens_per_minute',
  'max_concurrent',
  'endpoints',
  'reset',
  'over_quota',
  'notify_at',
  'on_outage',
  'shadow',
] as const satisfies readonly RuleName[];

const RULE_READERS: { [N in RuleName]: (value: unknown) => PlanRules[N] } = {
  daily_limit: asNumber,
  monthly_token_limit: asNumber,
  max_tokens_per_request: asNumber,
  max_tokens_mode: (value) => oneOf(value, ['reject', 'clamp'], 'reject'),
  allowed_models: (value) => (Array.isArray(value) ? texts(value) : null),
  rate: (value) => nullable(value, (rate) => ({
    capacity: asNumber(rate['capacity']) ?? 0,
    refill_per_minute: asNumber(rate['refill_per_minute']) ?? 0,
  })),
  window: readWindow,
  tokens_per_minute: asNumber,
  max_concurrent: asNumber,
  endpoints: (value) => asArray(value).map(asRecord).map((one) => ({
    name: asText(one['name']) ?? '',
    max_requests: asNumber(one['max_requests']) ?? 0,
    per_seconds: asNumber(one['per_seconds']) ?? 0,
  })),
  reset: (value) => {
    const reset = asRecord(value);
    return {
      mode: oneOf(reset['mode'], ['calendar', 'rolling'], 'calendar'),
      timezone: asText(reset['timezone']) ?? 'UTC',
      billing_day: asNumber(reset['billing_day']) ?? 1,
    };
  },
  over_quota: (value) => {
    const over = asRecord(value);
    return {
      strategy: oneOf(over['strategy'], ['reject', 'degrade', 'queue'], 'reject'),
      degrade_model: asText(over['degrade_model']),
      degrade_daily_limit: asNumber(over['degrade_daily_limit']),
      queue_limit: asNumber(over['queue_limit']),
    };
  },
  notify_at: (value) => asArray(value).filter((share): share is number => typeof share === 'number'),
  on_outage: (value) => oneOf(value, ['open', 'closed'], 'open'),
  shadow: (value) => value === true,
};

export function readPlan(value: unknown): Plan {
  const plan = asRecord(value);
  const planId = asText(plan['plan_id']) ?? '';
  return { plan_id: planId, name: asText(plan['name']) ?? planId, ...readRules(plan) };
}

/** Only the rules that are set for this user; the others come from the plan. */
export function readOverrides(value: unknown): Overrides {
  const overrides = asRecord(value);
  const set = RULE_NAMES.filter((name) => name in overrides);
  return Object.fromEntries(set.map((name) => [name, RULE_READERS[name](overrides[name])]));
}

/** The plan a form starts from when a new one is made: a small, safe one. */
export function newPlan(): Plan {
  return {
    plan_id: '',
    name: '',
    daily_limit: 100,
    monthly_token_limit: 1_000_000,
    max_tokens_per_request: 2000,
    max_tokens_mode: 'clamp',
    allowed_models: null,
    rate: { capacity: 20, refill_per_minute: 20 },
    window: 'default',
    tokens_per_minute: null,
    max_concurrent: null,
    endpoints: [],
    reset: { mode: 'calendar', timezone: 'UTC', billing_day: 1 },
    over_quota: { strategy: 'reject', degrade_model: null, degrade_daily_limit: null, queue_limit: 100 },
    notify_at: [0.8, 1],
    on_outage: 'open',
    shadow: false,
  };
}

function readRules(plan: Record<string, unknown>): PlanRules {
  return Object.fromEntries(
    RULE_NAMES.map((name) => [name, RULE_READERS[name](plan[name])]),
  ) as unknown as PlanRules;
}

// The gateway leaves the field out of a plan that takes its setting.
function readWindow(value: unknown): WindowRule {
  if (value === undefined || value === 'default') return 'default';
  return nullable(value, (window) => ({
    max_requests: asNumber(window['max_requests']) ?? 0,
    minutes: asNumber(window['minutes']) ?? 0,
  }));
}

/** The window that a rule itself sets. */
export function ownWindow(rule: WindowRule | undefined): { max_requests: number; minutes: number } | null {
  return typeof rule === 'object' ? rule : null;
}

function nullable<T>(value: unknown, read: (record: Record<string, unknown>) => T): T | null {
  return value === null || value === undefined ? null : read(asRecord(value));
}

function texts(values: unknown[]): string[] {
  return values.filter((value): value is string => typeof value === 'string');
}
