import type { SluiceClient } from "./client.js";

/** A call that was let in. It is settled once, by whoever comes first: the handler or the middleware. */
export class Ticket {
  readonly #client: SluiceClient;
  readonly #reservationId: string | null;
  #ended = false;

  /** Tokens the call has used, if its handler knows; absent: as many as were reserved. */
  tokens: number | undefined;
  /** Set by a handler that goes on after its answer has begun, and settles by itself at its end. */
  deferred = false;

  constructor(client: SluiceClient, reservationId: string | null) {
    this.#client = client;
    this.#reservationId = reservationId;
  }

  /** The call is done. */
  settle(tokens: number | undefined = this.tokens): Promise<void> {
    return this.#end((client, id) => client.settle(id, tokens));
  }

  /** The call failed for a reason that is not its user's. */
  release(): Promise<void> {
    return this.#end((client, id) => client.release(id));
  }

  /** A question that gets lost does no harm: the gateway ends a reservation nobody settles by itself. */
  async #end(ask: (client: SluiceClient, id: string) => Promise<unknown>): Promise<void> {
    if (this.#ended || this.#reservationId === null) return;
    this.#ended = true;
    await ask(this.#client, this.#reservationId).catch(() => undefined);
  }
}
