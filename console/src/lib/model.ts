import { readOverrides, type Overrides } from './plan';
import { asArray, asNumber, asRecord, asText, asTime, oneOf, type Json } from './read';

// What the console reads out of each answer, and nothing else.

export interface Policy {
  name: string;
  kind: 'fixed' | 'bucket' | 'sliding' | 'concurrency';
  unit: 'requests' | 'tokens' | 'concurrent-requests';
  limit: number;
  used: number;
  reserved: number;
  remaining: number;
  windowSeconds: number | null;
  resetsAtMs: number | null;
}

export interface Quota {
  userId: string;
  planId: string;
  planName: string;
  asOfMs: number | null;
  policies: Policy[];
  blocked: boolean;
  nextPlan: NextPlan | null;
}

/** The plan one step up, where the gateway names one. */
export interface NextPlan {
  name: string;
  limits: Record<string, number | null>;
}

export function readQuota(body: unknown): Quota {
  const quota = asRecord(body);
  const plan = asRecord(quota['plan']);
  const planId = asText(plan['plan_id']) ?? '';
  return {
    userId: asText(quota['user_id']) ?? '',
    planId,
    planName: asText(plan['name']) ?? planId,
    asOfMs: asTime(quota['as_of']),
    policies: asArray(quota['policies']).map(asRecord).map(readPolicy),
    blocked: quota['blocked'] === true,
    nextPlan: readNextPlan(quota['next_plan']),
  };
}

function readPolicy(policy: Json): Policy {
  const limit = asNumber(policy['limit']) ?? 0;
  const used = asNumber(policy['used']) ?? 0;
  return {
    name: asText(policy['name']) ?? '',
    kind: oneOf(policy['kind'], ['fixed', 'bucket', 'sliding', 'concurrency'], 'fixed'),
    unit: oneOf(policy['unit'], ['requests', 'tokens', 'concurrent-requests'], 'requests'),
    limit,
    used,
    reserved: asNumber(policy['reserved']) ?? 0,
    remaining: asNumber(policy['remaining']) ?? Math.max(0, limit - used),
    windowSeconds: asNumber(policy['window_seconds']),
    resetsAtMs: asTime(policy['resets_at']),
  };
}

function readNextPlan(value: unknown): NextPlan | null {
  const plan = asRecord(value);
  const name = asText(plan['name']) ?? asText(plan['plan_id']);
  if (name === null) return null;
  return {
    name,
    limits: { daily: asNumber(plan['daily_limit']), 'monthly-tokens': asNumber(plan['monthly_token_limit']) },
  };
}

export interface UsageDay {
  date: string;
  calls: number;
  rejected: number;
  tokens: number;
}

export function readUsageDay(value: unknown): UsageDay {
  const day = asRecord(value);
  const parts = (asNumber(day['prompt_tokens']) ?? 0) + (asNumber(day['completion_tokens']) ?? 0);
  return {
    date: (asText(day['date']) ?? '').slice(0, 10),
    calls: asNumber(day['calls']) ?? 0,
    rejected: asNumber(day['rejected']) ?? 0,
    tokens: asNumber(day['total_tokens']) ?? parts,
  };
}

export interface User {
  userId: string;
  planId: string;
  email: string | null;
  webhookUrl: string | null;
  blocked: boolean;
  overrides: Overrides;
  createdAtMs: number | null;
}

export function readUser(value: unknown): User {
  const user = asRecord(value);
  return {
    userId: asText(user['user_id']) ?? '',
    planId: asText(user['plan_id']) ?? '',
    email: asText(user['email']),
    webhookUrl: asText(user['webhook_url']),
    blocked: user['status'] === 'blocked',
    overrides: readOverrides(user['overrides']),
    createdAtMs: asTime(user['created_at']),
  };
}

export interface ApiKey {
  keyId: string;
  name: string | null;
  last4: string;
  scope: string;
  createdAtMs: number | null;
  expiresAtMs: number | null;
  revokedAtMs: number | null;
}

export function readKey(value: unknown): ApiKey {
  const key = asRecord(value);
  return {
    keyId: asText(key['key_id']) ?? '',
    name: asText(key['name']),
    last4: asText(key['last4']) ?? '????',
    scope: asText(key['scope']) ?? 'user',
    createdAtMs: asTime(key['created_at']),
    expiresAtMs: asTime(key['expires_at']),
    revokedAtMs: asTime(key['revoked_at']),
  };
}

export const JOB_STATUSES = ['queued', 'running', 'succeeded', 'failed', 'cancelled', 'expired'] as const;
export type JobStatus = (typeof JOB_STATUSES)[number];

export interface Job {
  id: string;
  userId: string | null;
  status: JobStatus;
  createdAtMs: number | null;
  notBeforeMs: number | null;
  expiresAtMs: number | null;
  attempts: number;
  result: unknown;
  errorText: string | null;
}

export function readJob(value: unknown): Job {
  const job = asRecord(value);
  const error = asRecord(job['error']);
  return {
    id: asText(job['id']) ?? '',
    userId: asText(job['user_id']),
    status: oneOf(job['status'], JOB_STATUSES, 'queued'),
    createdAtMs: asTime(job['created_at']),
    notBeforeMs: asTime(job['not_before']),
    expiresAtMs: asTime(job['expires_at']),
    attempts: asNumber(job['attempts']) ?? 0,
    result: job['result'] ?? null,
    errorText: asText(job['error']) ?? asText(error['message']) ?? asText(asRecord(error['error'])['message']),
  };
}

export function isOpenJob(job: Job): boolean {
  return job.status === 'queued' || job.status === 'running';
}

/** The text of a chat completion, in a job's result or a plain answer. */
export function completionText(value: unknown): string | null {
  const choice = asRecord(asArray(asRecord(value)['choices'])[0]);
  return asText(asRecord(choice['message'])['content']) ?? asText(choice['text']);
}

export interface Notice {
  id: string;
  kind: string;
  title: string | null;
  text: string | null;
  policy: string | null;
  share: number | null;
  createdAtMs: number | null;
  read: boolean;
}

export function readNotice(value: unknown): Notice {
  const notice = asRecord(value);
  const data = asRecord(notice['data']);
  return {
    id: asText(notice['id']) ?? '',
    kind: asText(notice['type']) ?? asText(notice['kind']) ?? '',
    title: asText(notice['title']),
    text: asText(notice['message']) ?? asText(notice['body']),
    policy: asText(notice['policy']) ?? asText(data['policy']),
    share: asNumber(notice['threshold']) ?? asNumber(data['threshold']),
    createdAtMs: asTime(notice['created_at']),
    read: asTime(notice['read_at']) !== null || notice['read'] === true,
  };
}

export interface Counts {
  allowed: number;
  refused: number;
  refusedBy: Record<string, number>;
  degraded: number;
  queued: number;
  failedOpen: number;
  tokens: number;
  /** 0 to 1; `null` where nothing was called. */
  refusalRate: number | null;
}

/** What one endpoint's own limit refused. What passed there is counted only where the gateway says so. */
export interface EndpointCounts {
  name: string;
  allowed: number | null;
  refused: number;
  refusalRate: number | null;
}

export interface Stats {
  totals: Counts;
  plans: ({ planId: string } & Counts)[];
  endpoints: EndpointCounts[];
  days: { date: string; planId: string; allowed: number; refused: number }[];
  topUsers: { userId: string; planId: string; calls: number; tokens: number; rejected: number }[];
}

export function readStats(body: unknown): Stats {
  const stats = asRecord(body);
  return {
    totals: readCounts(asRecord(stats['totals'])),
    plans: rows(stats['plans']).map((row) => ({ planId: asText(row['plan_id']) ?? '', ...readCounts(row) })),
    endpoints: rows(stats['endpoints']).map(readEndpoint),
    days: rows(stats['days']).map((row) => ({
      date: (asText(row['date']) ?? '').slice(0, 10),
      planId: asText(row['plan_id']) ?? '',
      allowed: asNumber(row['allowed']) ?? 0,
      refused: asNumber(row['refused']) ?? 0,
    })),
    topUsers: rows(stats['top_users']).map((row) => ({
      userId: asText(row['user_id']) ?? '',
      planId: asText(row['plan_id']) ?? '',
      calls: asNumber(row['calls']) ?? 0,
      tokens: asNumber(row['tokens']) ?? 0,
      rejected: asNumber(row['rejected']) ?? 0,
    })),
  };
}

function readCounts(row: Json): Counts {
  const allowed = asNumber(row['allowed']) ?? 0;
  const refused = asNumber(row['refused']) ?? 0;
  const all = allowed + refused;
  const reasons = Object.entries(asRecord(row['refused_by']));
  return {
    allowed,
    refused,
    refusedBy: Object.fromEntries(reasons.map(([reason, n]) => [reason, asNumber(n) ?? 0])),
    degraded: asNumber(row['degraded']) ?? 0,
    queued: asNumber(row['queued']) ?? 0,
    failedOpen: asNumber(row['failed_open']) ?? 0,
    tokens: asNumber(row['tokens']) ?? 0,
    refusalRate: asNumber(row['refusal_rate']) ?? (all === 0 ? null : refused / all),
  };
}

function readEndpoint(row: Json): EndpointCounts {
  return {
    name: asText(row['name']) ?? '',
    allowed: asNumber(row['allowed']),
    refused: asNumber(row['refused']) ?? 0,
    refusalRate: asNumber(row['refusal_rate']),
  };
}

function rows(value: unknown): Json[] {
  return asArray(value).map(asRecord);
}

export interface Alert {
  id: string;
  kind: string;
  subject: string;
  openedAtMs: number | null;
  closedAtMs: number | null;
  detail: string | null;
}

export function readAlert(value: unknown): Alert {
  const alert = asRecord(value);
  const detail = alert['detail'];
  return {
    id: asText(alert['id']) ?? '',
    kind: asText(alert['kind']) ?? '',
    subject: asText(alert['subject']) ?? '',
    openedAtMs: asTime(alert['opened_at']),
    closedAtMs: asTime(alert['closed_at']),
    detail: typeof detail === 'object' && detail !== null ? JSON.stringify(detail) : asText(detail),
  };
}

export interface AuditEntry {
  id: string;
  atMs: number | null;
  actor: string;
  action: string;
  target: string;
  before: unknown;
  after: unknown;
}

export function readAudit(value: unknown): AuditEntry {
  const entry = asRecord(value);
  return {
    id: String(entry['id'] ?? ''),
    atMs: asTime(entry['at']),
    actor: asText(entry['actor']) ?? '',
    action: asText(entry['action']) ?? '',
    target: asText(entry['target']) ?? '',
    before: entry['before'] ?? null,
    after: entry['after'] ?? null,
  };
}

export interface Route {
  routeId: string;
  pathPrefix: string;
  methods: string[] | null;
  upstreamUrl: string;
  endpoint: string | null;
  cost: number;
  timeoutMs: number | null;
}

export function readRoute(value: unknown): Route {
  const route = asRecord(value);
  const methods = route['methods'];
  return {
    routeId: asText(route['route_id']) ?? '',
    pathPrefix: asText(route['path_prefix']) ?? '',
    methods: Array.isArray(methods) ? methods.filter((one): one is string => typeof one === 'string') : null,
    upstreamUrl: asText(route['upstream_url']) ?? '',
    endpoint: asText(route['endpoint']),
    cost: asNumber(route['cost']) ?? 1,
    timeoutMs: asNumber(route['timeout_ms']),
  };
}

export const UPSTREAMS = ['openai', 'anthropic', 'workers-ai', 'mock'] as const;

export interface ModelRow {
  model: string;
  upstream: (typeof UPSTREAMS)[number];
  baseUrl: string | null;
  secretName: string | null;
  upstreamModel: string | null;
  aliases: string[];
}

export function readModel(value: unknown): ModelRow {
  const row = asRecord(value);
  return {
    model: asText(row['model']) ?? asText(row['id']) ?? '',
    upstream: oneOf(row['upstream'], UPSTREAMS, 'openai'),
    baseUrl: asText(row['base_url']),
    secretName: asText(row['secret_name']),
    upstreamModel: asText(row['upstream_model']),
    aliases: asArray(row['aliases']).filter((one): one is string => typeof one === 'string'),
  };
}
