import type { Context, MiddlewareHandler } from "hono";
import { door } from "./rules.js";
import type { Rules } from "./rules.js";
import type { Ticket } from "./ticket.js";

declare module "hono" {
  interface ContextVariableMap {
    /** The call's ticket, behind the middleware. */
    sluice: Ticket;
  }
}

/** Holds every call to its user's plan. One that fails with 5xx is given back; every other is settled. */
export function sluice(rules: Rules<Context>): MiddlewareHandler {
  const enter = door(rules);
  return async (c, next) => {
    const outcome = await enter(c);
    if (!outcome.allowed) return Response.json(outcome.body, { status: outcome.status, headers: outcome.headers });
    const { ticket, headers } = outcome;
    c.set("sluice", ticket);
    await next();
    for (const [name, value] of Object.entries(headers)) c.header(name, value);
    if (!ticket.deferred) afterwards(c, c.error || c.res.status >= 500 ? ticket.release() : ticket.settle());
    return undefined;
  };
}

/** On a Worker, work that goes on after the answer has to be announced; elsewhere it just goes on. */
function afterwards(c: Context, work: Promise<void>): void {
  try {
    c.executionCtx.waitUntil(work);
  } catch {
    // Hono throws where there is no execution context; nothing has to be announced there.
  }
}
