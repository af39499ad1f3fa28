import { describe, expect, it } from 'vitest';
import { diffValues, same } from '../src/lib/diff';
import { newPlan, readOverrides, readPlan, type Plan } from '../src/lib/plan';
import { checkPlan, checkRules } from '../src/lib/plan-check';
import { diffPlans, loweredPolicies, patchOf } from '../src/lib/plan-diff';

const plan = (change: Partial<Plan> = {}): Plan => ({ ...newPlan(), plan_id: 'free', name: 'Free', ...change });

function effects(before: Partial<Plan>, after: Partial<Plan>): Record<string, string> {
  return Object.fromEntries(diffPlans(plan(before), plan(after)).map(({ path, effect }) => [path, effect]));
}

describe('diffValues', () => {
  it('names the leaves that differ', () =>
    expect(diffValues({ a: 1, b: { c: 2, d: 3 } }, { a: 1, b: { c: 9, d: 3 }, e: null })).toEqual([
      { path: 'b.c', before: 2, after: 9 },
      { path: 'e', before: undefined, after: null },
    ]));
  it('does not mind the order of fields', () => expect(same({ a: 1, b: [2] }, { b: [2], a: 1 })).toBe(true));
  it('keeps null and absent apart', () => expect(same({ a: null }, {})).toBe(false));
  it('shows a value that becomes null whole', () =>
    expect(diffValues({ rate: { capacity: 1 } }, { rate: null })).toEqual([
      { path: 'rate', before: { capacity: 1 }, after: null },
    ]));
});

describe('diffPlans', () => {
  it('finds nothing in an equal plan', () => expect(diffPlans(plan(), plan())).toEqual([]));
  it('knows that null is unlimited and zero is none', () => {
    expect(effects({ daily_limit: 10 }, { daily_limit: null })).toEqual({ daily_limit: 'looser' });
    expect(effects({ daily_limit: null }, { daily_limit: 1_000_000 })).toEqual({ daily_limit: 'tighter' });
    expect(effects({ daily_limit: 10 }, { daily_limit: 0 })).toEqual({ daily_limit: 'tighter' });
  });
  it('judges models as sets', () => {
    expect(effects({ allowed_models: null }, { allowed_models: ['a'] })).toEqual({ allowed_models: 'tighter' });
    expect(effects({ allowed_models: ['a'] }, { allowed_models: ['a', 'b'] })).toEqual({ allowed_models: 'looser' });
    expect(effects({ allowed_models: ['a'] }, { allowed_models: ['b'] })).toEqual({ allowed_models: 'different' });
  });
  it('judges a rate by its parts and by being there', () => {
    expect(effects({}, { rate: { capacity: 5, refill_per_minute: 40 } })).toEqual({
      'rate.capacity': 'tighter',
      'rate.refill_per_minute': 'looser',
    });
    expect(effects({}, { rate: null })).toEqual({ rate: 'looser' });
  });
  it('keeps the three kinds of window apart', () => {
    const own = { max_requests: 5, minutes: 60 };
    expect(readPlan({}).window).toBe('default');
    expect(readPlan({ window: null }).window).toBeNull();
    expect(readPlan({ window: own }).window).toEqual(own);
    expect(effects({ window: 'default' }, { window: null })).toEqual({ window: 'looser' });
    expect(effects({ window: null }, { window: 'default' })).toEqual({ window: 'tighter' });
    expect(effects({ window: 'default' }, { window: own })).toEqual({ window: 'different' });
    expect(patchOf(plan({ window: own }), plan({ window: 'default' }))).toEqual({ window: 'default' });
  });
  it('takes enforcing instead of watching as tighter', () =>
    expect(effects({ shadow: true }, { shadow: false })).toEqual({ shadow: 'tighter' }));
});

describe('patchOf', () => {
  it('sends whole top-level fields, and only the changed ones', () =>
    expect(patchOf(plan(), plan({ name: 'Freer', rate: { capacity: 99, refill_per_minute: 20 } }))).toEqual({
      name: 'Freer',
      rate: { capacity: 99, refill_per_minute: 20 },
    }));
  it('never sends the id', () => expect(patchOf(plan(), plan({ plan_id: 'other' }))).toEqual({}));
});

describe('loweredPolicies', () => {
  it('lists what users may be over at once', () =>
    expect(
      loweredPolicies(
        plan({ daily_limit: 10, monthly_token_limit: null }),
        plan({ daily_limit: 5, monthly_token_limit: 1000 }),
      ),
    ).toEqual([
      { policy: 'daily', rule: 'daily_limit', limit: 5 },
      { policy: 'monthly-tokens', rule: 'monthly_token_limit', limit: 1000 },
    ]));
  it('leaves out what is raised or lifted', () =>
    expect(loweredPolicies(plan({ daily_limit: 10 }), plan({ daily_limit: null }))).toEqual([]));
});

describe('reading plans', () => {
  it('fills what is missing and keeps null and empty apart', () => {
    const read = readPlan({ plan_id: 'p', daily_limit: 0, allowed_models: [] });
    expect(read).toMatchObject({ name: 'p', daily_limit: 0, monthly_token_limit: null, allowed_models: [], rate: null });
  });
  it('keeps only the overrides that are set, null included', () =>
    expect(readOverrides({ daily_limit: null, plan_id: 'x', shadow: true })).toEqual({ daily_limit: null, shadow: true }));
});

describe('checkPlan', () => {
  it('accepts a good plan', () => expect(checkPlan(plan())).toEqual({}));
  it('names the fields that cannot be saved', () =>
    expect(
      checkPlan(
        plan({
          plan_id: 'no spaces',
          name: ' ',
          daily_limit: -1,
          monthly_token_limit: 2 ** 53,
          window: { max_requests: 1.5, minutes: 0 },
          allowed_models: ['gpt-*-mini'],
          notify_at: [80],
          endpoints: [{ name: '', max_requests: 1, per_seconds: 1 }],
          reset: { mode: 'calendar', timezone: 'Mars/Base', billing_day: 32 },
          over_quota: { strategy: 'degrade', degrade_model: null, degrade_daily_limit: null, queue_limit: null },
        }),
      ),
    ).toEqual({
      plan_id: 'identifier',
      name: 'required',
      daily_limit: 'whole',
      monthly_token_limit: 'whole',
      'window.max_requests': 'whole',
      'window.minutes': 'atLeastOne',
      allowed_models: 'model',
      notify_at: 'share',
      'endpoints.0.name': 'required',
      'reset.timezone': 'timezone',
      'reset.billing_day': 'billingDay',
      'over_quota.degrade_model': 'required',
    }));
  it('refuses a field left empty', () => expect(checkRules({ daily_limit: NaN })).toEqual({ daily_limit: 'whole' }));
});
