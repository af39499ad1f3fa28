import { Api } from '../lib/api';
import { readUser, type User } from '../lib/model';
import { readPlan, type Plan } from '../lib/plan';
import { asPage, type Page } from '../lib/read';
import { createSession } from '../lib/session';

/** The operator's sign-in and the gateway as the operator sees it. */
export const session = createSession('sluice.admin-token');
export const api = new Api(session);

/** The largest page the gateway gives. */
export const LARGEST_PAGE = 200;

export async function loadPlans(signal: AbortSignal): Promise<Plan[]> {
  const body = await api.call('GET', '/admin/plans', { query: { limit: LARGEST_PAGE }, signal });
  return asPage(body, readPlan).items;
}

export async function loadUsersOf(planId: string, signal: AbortSignal): Promise<Page<User>> {
  const query = { plan_id: planId, limit: LARGEST_PAGE };
  const page = asPage(await api.call('GET', '/admin/users', { query, signal }), readUser);
  return { ...page, items: page.items.filter((user) => user.planId === planId) };
}

export function userPath(userId: string, rest = ''): string {
  return `/admin/users/${encodeURIComponent(userId)}${rest}`;
}
