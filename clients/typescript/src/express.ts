import type { Request, RequestHandler, Response } from "express";
import { door } from "./rules.js";
import type { Rules } from "./rules.js";
import type { Ticket } from "./ticket.js";

declare global {
  // The namespace is how Express lets its types be extended.
  namespace Express {
    interface Locals {
      /** The call's ticket, behind the middleware. */
      sluice: Ticket;
    }
  }
}

/**
 * Holds every call to its user's plan; handlers find their ticket in `res.locals.sluice`. A call that fails with 5xx
 * is given back; every other is settled when its answer has ended or its caller has left.
 */
export function sluice(rules: Rules<Request>): RequestHandler {
  const enter = door(rules);
  return (req, res, next) => {
    enter(req).then((outcome) => {
      for (const [name, value] of Object.entries(outcome.headers)) res.setHeader(name, value);
      if (!outcome.allowed) return void res.status(outcome.status).json(outcome.body);
      res.locals.sluice = outcome.ticket;
      res.once("close", () => end(outcome.ticket, res));
      next();
    }).catch(next);
  };
}

function end(ticket: Ticket, res: Response): void {
  if (ticket.deferred) return;
  void (res.writableFinished && res.statusCode >= 500 ? ticket.release() : ticket.settle());
}
