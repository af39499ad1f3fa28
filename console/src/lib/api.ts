import { asNumber, asRecord, asText, asTime } from './read';
import { parseRetryAfter } from './retry';
import type { Session } from './session';

/** A call that failed. `status` is 0 where no answer came, or where a stream broke after its start. */
export class ApiError extends Error {
  readonly status: number;
  /** Whether the gateway could not be reached at all. */
  readonly unreachable: boolean;
  readonly code: string | null;
  readonly param: string | null;
  readonly policy: string | null;
  readonly limit: number | null;
  readonly remaining: number | null;
  readonly resetAtMs: number | null;
  readonly retryAfterMs: number | null;
  readonly requestId: string | null;

  constructor(status: number, body: unknown, headers: Headers = new Headers()) {
    const root = asRecord(body);
    const error = asRecord(root['error']);
    super(asText(error['message']) ?? `HTTP ${status}`);
    this.name = 'ApiError';
    this.status = status;
    this.unreachable = status === 0 && body === null;
    this.code = asText(error['code']);
    this.param = asText(error['param']);
    this.policy = asText(error['policy']);
    this.limit = asNumber(error['limit']);
    this.remaining = asNumber(error['remaining']);
    this.resetAtMs = asTime(error['reset_at']) ?? asTime(root['resetAt']);
    this.retryAfterMs = parseRetryAfter(headers.get('retry-after'), Date.now());
    this.requestId = headers.get('x-request-id') ?? asText(root['request_id']);
  }
}

export interface CallOptions {
  body?: unknown;
  query?: Record<string, string | number | null | undefined>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export interface Answer {
  status: number;
  headers: Headers;
  body: unknown;
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

const TIMEOUT_MS = 30_000;

/** The gateway as one signed-in person sees it. */
export class Api {
  constructor(private readonly session: Session) {}

  /** The body of a successful answer; anything else throws `ApiError`. */
  async call(method: Method, path: string, options: CallOptions = {}): Promise<unknown> {
    return (await this.answer(method, path, options)).body;
  }

  /** Like `call`, with status and headers. */
  async answer(method: Method, path: string, options: CallOptions = {}): Promise<Answer> {
    const limit = AbortSignal.timeout(TIMEOUT_MS);
    const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
    const response = await this.open(method, path, { ...options, signal });
    return { status: response.status, headers: response.headers, body: await readJson(response) };
  }

  /** The open response, its body unread, for streams. It has no time limit of its own. */
  async open(method: Method, path: string, options: CallOptions = {}): Promise<Response> {
    const credential = this.session.credential.peek() ?? '';
    const response = await send(method, path, credential, options);
    if (response.ok) return response;
    // A late answer to an old credential must not end the session of a newer one.
    if (response.status === 401 && this.session.credential.peek() === credential) this.session.expire();
    throw new ApiError(response.status, await readJson(response), response.headers);
  }
}

/** Asks once with a credential that is not signed in yet. */
export async function tryCredential(credential: string, path: string): Promise<void> {
  const response = await send('GET', path, credential, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new ApiError(response.status, await readJson(response), response.headers);
}

async function send(method: Method, path: string, credential: string, options: CallOptions): Promise<Response> {
  const headers: Record<string, string> = { authorization: `Bearer ${credential}`, ...options.headers };
  if (options.body !== undefined) headers['content-type'] = 'application/json';
  const request: RequestInit = { method, headers, credentials: 'omit', cache: 'no-store' };
  if (options.body !== undefined) request.body = JSON.stringify(options.body);
  if (options.signal) request.signal = options.signal;
  try {
    return await fetch(path + queryString(options.query), request);
  } catch (cause) {
    if (isAbort(cause)) throw cause;
    throw new ApiError(0, null);
  }
}

async function readJson(response: Response): Promise<unknown> {
  const text = await response.text();
  if (text === '') return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function queryString(query: CallOptions['query']): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== '') params.set(name, String(value));
  }
  const text = params.toString();
  return text === '' ? '' : `?${text}`;
}

/** Whether a call ended because this page ended it. A time-out is not that. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

/** Any thrown thing as an `ApiError`, so that every failure can be shown alike. */
export function toApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, null);
}
