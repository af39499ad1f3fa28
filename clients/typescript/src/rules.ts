import type { ConsumeRequest } from "./client.js";
import { Guard, nobody } from "./guard.js";
import type { GuardOptions, Outcome } from "./guard.js";

type Each<C, T> = T | ((context: C) => T);

/** What a middleware has to know of each call; `C` is what its framework hands to handlers. */
export interface Rules<C> extends GuardOptions {
  /** Who calls: nobody is a 401. */
  user: (context: C) => string | null | undefined | Promise<string | null | undefined>;
  /** The plan's endpoint limit it counts against. */
  endpoint?: Each<C, string | undefined>;
  /** How much of the limits it takes. */
  cost?: Each<C, number | undefined>;
  /** Tokens to reserve. */
  tokens?: Each<C, number | undefined>;
}

/** A question about each call, by the rules. */
export function door<C>(rules: Rules<C>): (context: C) => Promise<Outcome> {
  const guard = new Guard(rules);
  return async (context) => {
    const userId = await rules.user(context);
    if (!userId) return nobody();
    const asked: Record<string, unknown> = { endpoint: of(rules.endpoint, context), cost: of(rules.cost, context), tokens: of(rules.tokens, context) };
    const given = Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== undefined));
    return guard.enter({ userId, ...given } as ConsumeRequest);
  };
}

function of<C, T>(rule: Each<C, T> | undefined, context: C): T | undefined {
  return typeof rule === "function" ? (rule as (context: C) => T)(context) : rule;
}
