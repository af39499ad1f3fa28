/** Where the gateway is and how it is asked. */
export interface ClientOptions {
  /** The gateway's address, such as `https://gateway.example`. */
  url: string;
  /** A key of scope `service`. */
  key: string;
  /** Milliseconds one question may take, a second try included. Default 1000. */
  timeoutMs?: number;
  /** In place of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
}

/** What a user is about to do. */
export interface ConsumeRequest {
  userId: string;
  /** The plan's endpoint limit it counts against. */
  endpoint?: string;
  /** How much of the limits it takes; at least 1, which is the default. */
  cost?: number;
  /** Tokens to reserve until it is settled. Default 0. */
  tokens?: number;
  /** Asked again with the same id, it is answered again and charged once. Made up if absent. */
  operationId?: string;
}

/** How one limit stands. */
export interface Policy {
  name: string;
  kind: "fixed" | "bucket" | "sliding" | "concurrency";
  unit: "requests" | "tokens" | "concurrent-requests";
  limit: number;
  used: number;
  reserved: number;
  remaining: number;
  window_seconds: number | null;
  resets_at: string;
}

/** The `error` of a refusal. */
export interface RefusalError {
  message: string;
  type: string;
  code: string;
  param: string | null;
  policy?: string;
  limit?: number;
  remaining?: number;
  reset_at?: string;
}

/** What the gateway says. */
export interface Decision {
  allowed: boolean;
  /** What to settle or release; null for a peek and a refusal. */
  reservation_id: string | null;
  policies: Policy[];
  /** What to copy to the answer, refused or not. */
  headers: Record<string, string>;
  /** Of a refusal: the status to answer with. */
  status?: number;
  /** Of a refusal. */
  error?: RefusalError;
  /** Of a refusal by a limit. */
  resetAt?: string;
  /** Of a refusal. */
  request_id?: string;
}

/** The answer to `settle` and `release`. */
export interface Concluded {
  /** False: the gateway knows no such reservation, or has forgotten it. */
  settled: boolean;
  policies?: Policy[];
  headers?: Record<string, string>;
}

/** The gateway understood the question and says that something is wrong with it or with the key. */
export class SluiceError extends Error {
  override readonly name = "SluiceError";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId: string | null,
  ) {
    super(message);
  }
}

/** The gateway did not answer in time, or can't decide right now. */
export class SluiceUnavailable extends Error {
  override readonly name = "SluiceUnavailable";
}

/** Asks a Sluice gateway what a service's users may do. */
export class SluiceClient {
  readonly #url: string;
  readonly #key: string;
  readonly #timeoutMs: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor({ url, key, timeoutMs = 1000, fetch = globalThis.fetch.bind(globalThis) }: ClientOptions) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    this.#timeoutMs = timeoutMs;
    this.#fetch = fetch;
  }

  /** May the user do this? Charges it if so. */
  consume(request: ConsumeRequest): Promise<Decision> {
    return this.#ask("consume", asBody({ operationId: crypto.randomUUID(), ...request }));
  }

  /** May the user do this? Charges nothing. */
  peek(request: Omit<ConsumeRequest, "operationId">): Promise<Decision> {
    return this.#ask("consume", { ...asBody(request), peek: true });
  }

  /** It is done, and used these tokens; absent: as many as were reserved. */
  settle(reservationId: string, tokens?: number): Promise<Concluded> {
    return this.#ask("settle", { reservation_id: reservationId, ...(tokens !== undefined && { tokens }) });
  }

  /** It failed: the user's quotas get back what they gave. */
  release(reservationId: string): Promise<Concluded> {
    return this.#ask("release", { reservation_id: reservationId });
  }

  /** Every question can be asked twice and counts once, so one that got lost is asked again at once. */
  async #ask<T>(question: string, body: object): Promise<T> {
    const signal = AbortSignal.timeout(this.#timeoutMs);
    try {
      return await this.#askOnce(question, body, signal);
    } catch (error) {
      if (!(error instanceof SluiceUnavailable) || signal.aborted) throw error;
      return this.#askOnce(question, body, signal);
    }
  }

  async #askOnce<T>(question: string, body: object, signal: AbortSignal): Promise<T> {
    const { answer, text } = await this.#send(question, body, signal);
    const json = parsed(text);
    if (answer.ok && json) return json as T;
    if (answer.ok || answer.status >= 500) throw new SluiceUnavailable(`The gateway answered ${answer.status}.`);
    const { error } = (json ?? {}) as { error?: Partial<RefusalError> };
    const message = error?.message ?? `The gateway answered ${answer.status}.`;
    throw new SluiceError(answer.status, error?.code ?? "unknown", message, answer.headers.get("x-request-id"));
  }

  async #send(question: string, body: object, signal: AbortSignal): Promise<{ answer: Response; text: string }> {
    try {
      const answer = await this.#fetch(`${this.#url}/api/limits/${question}`, {
        method: "POST",
        headers: { authorization: `Bearer ${this.#key}`, "content-type": "application/json" },
        body: JSON.stringify(body),
        redirect: "error",
        signal,
      });
      return { answer, text: await answer.text() };
    } catch (cause) {
      throw new SluiceUnavailable("The gateway did not answer in time.", { cause });
    }
  }
}

function asBody({ userId, endpoint, cost, tokens, operationId }: ConsumeRequest): Record<string, unknown> {
  return { user_id: userId, endpoint, cost, tokens, operation_id: operationId };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
