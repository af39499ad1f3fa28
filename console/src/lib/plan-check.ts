import { ownWindow, type Plan, type PlanRules } from './plan';

/** Why a field of a plan cannot be saved. */
export type Problem = 'whole' | 'atLeastOne' | 'required' | 'identifier' | 'model' | 'share' | 'timezone' | 'billingDay';

/** Problems by the path of the field. */
export type Problems = Record<string, Problem>;

/** The largest number that JSON readers everywhere keep exactly. */
export const LARGEST = 2 ** 53 - 1;

/** What the gateway would answer 400 to, found before it is asked. */
export function checkPlan(plan: Plan): Problems {
  const problems = checkRules(plan);
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/.test(plan.plan_id)) problems['plan_id'] = 'identifier';
  if (plan.name.trim() === '') problems['name'] = 'required';
  return problems;
}

export function checkRules(rules: Partial<PlanRules>): Problems {
  const problems: Problems = {};
  const note = (path: string, problem: Problem | null) => {
    if (problem) problems[path] = problem;
  };
  for (const name of ['daily_limit', 'monthly_token_limit', 'max_tokens_per_request', 'tokens_per_minute', 'max_concurrent'] as const) {
    note(name, whole(rules[name]));
  }
  note('rate.capacity', whole(rules.rate?.capacity));
  note('rate.refill_per_minute', whole(rules.rate?.refill_per_minute));
  note('window.max_requests', whole(ownWindow(rules.window)?.max_requests));
  note('window.minutes', positive(ownWindow(rules.window)?.minutes));
  note('over_quota.degrade_daily_limit', whole(rules.over_quota?.degrade_daily_limit));
  note('over_quota.queue_limit', whole(rules.over_quota?.queue_limit));
  if (rules.over_quota?.strategy === 'degrade' && !rules.over_quota.degrade_model) {
    note('over_quota.degrade_model', 'required');
  }
  if (rules.allowed_models?.some((model) => !/^[^*\s]*\*?$/.test(model))) note('allowed_models', 'model');
  if (rules.notify_at?.some((share) => !(share > 0 && share <= 1))) note('notify_at', 'share');
  rules.endpoints?.forEach((endpoint, index) => {
    note(`endpoints.${index}.name`, endpoint.name === '' ? 'required' : null);
    note(`endpoints.${index}.max_requests`, whole(endpoint.max_requests));
    note(`endpoints.${index}.per_seconds`, positive(endpoint.per_seconds));
  });
  if (rules.reset) {
    note('reset.timezone', isTimeZone(rules.reset.timezone) ? null : 'timezone');
    const day = rules.reset.billing_day;
    note('reset.billing_day', Number.isInteger(day) && day >= 1 && day <= 31 ? null : 'billingDay');
  }
  return problems;
}

function whole(value: number | null | undefined): Problem | null {
  if (value === null || value === undefined) return null;
  return Number.isInteger(value) && value >= 0 && value <= LARGEST ? null : 'whole';
}

function positive(value: number | undefined): Problem | null {
  if (value === undefined) return null;
  return whole(value) ?? (value >= 1 ? null : 'atLeastOne');
}

function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name });
    return true;
  } catch {
    return false;
  }
}
