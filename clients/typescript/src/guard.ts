import { SluiceError, SluiceUnavailable } from "./client.js";
import type { ConsumeRequest, Decision, SluiceClient } from "./client.js";
import { LocalCap } from "./local-cap.js";
import { Ticket } from "./ticket.js";

/** What happens while the gateway is out of reach or too slow. */
export interface OutageOptions {
  /** Calls a user still gets a minute and process; 0: none. Default 30. */
  perMinute?: number;
  /** Milliseconds after a failure in which the gateway is not asked again. Default 1000. */
  pauseMs?: number;
}

export interface GuardOptions {
  client: SluiceClient;
  outage?: OutageOptions;
  /** Told of every call that the gateway was not there to decide. */
  onOutage?: (error: SluiceUnavailable) => void;
}

/** A call that may not go on, and the answer it gets. */
export interface Refused {
  allowed: false;
  status: number;
  headers: Record<string, string>;
  body: object;
}

export type Outcome = { allowed: true; headers: Record<string, string>; ticket: Ticket } | Refused;

/** Lets calls in or gives the answer that refuses them, whatever framework they come through. */
export class Guard {
  readonly #client: SluiceClient;
  readonly #cap: LocalCap;
  readonly #pauseMs: number;
  readonly #onOutage: (error: SluiceUnavailable) => void;
  #askAgainAt = 0;

  constructor({ client, outage: { perMinute = 30, pauseMs = 1000 } = {}, onOutage = () => {} }: GuardOptions) {
    this.#client = client;
    this.#cap = new LocalCap(perMinute);
    this.#pauseMs = pauseMs;
    this.#onOutage = onOutage;
  }

  /** Decides about one call. Throws what is wrong with the key or the question. */
  async enter(request: ConsumeRequest): Promise<Outcome> {
    try {
      return this.#outcome(await this.#ask(request));
    } catch (error) {
      if (error instanceof SluiceUnavailable) return this.#withoutGateway(request.userId, error);
      if (error instanceof SluiceError && error.code === "user_not_found") return stranger(error);
      throw error;
    }
  }

  async #ask(request: ConsumeRequest): Promise<Decision> {
    if (Date.now() < this.#askAgainAt) throw new SluiceUnavailable("The gateway has just failed.");
    try {
      return await this.#client.consume(request);
    } catch (error) {
      if (error instanceof SluiceUnavailable) this.#askAgainAt = Date.now() + this.#pauseMs;
      throw error;
    }
  }

  #outcome(decision: Decision): Outcome {
    const { allowed, headers, reservation_id, status = 429, error, resetAt, request_id } = decision;
    if (allowed) return { allowed, headers, ticket: new Ticket(this.#client, reservation_id) };
    return { allowed, headers, status, body: { error, resetAt, request_id } };
  }

  #withoutGateway(userId: string, error: SluiceUnavailable): Outcome {
    this.#onOutage(error);
    const { allowed, waitSeconds } = this.#cap.take(userId);
    if (allowed) return { allowed, headers: { "X-Sluice-Decision": "open" }, ticket: new Ticket(this.#client, null) };
    const message = `The limits can't be checked right now. Please try again in ${waitSeconds}s.`;
    return {
      allowed,
      status: 503,
      headers: { "Retry-After": String(waitSeconds) },
      body: { error: { message, type: "server_error", param: null, code: "server_is_overloaded" } },
    };
  }
}

/** The answer to a call that names no user. */
export function nobody(): Refused {
  const message = "This call names no user.";
  return { allowed: false, status: 401, headers: {}, body: { error: { message, type: "invalid_request_error", param: null, code: "no_user" } } };
}

function stranger({ message, code }: SluiceError): Refused {
  return { allowed: false, status: 403, headers: {}, body: { error: { message, type: "permission_error", param: null, code } } };
}
