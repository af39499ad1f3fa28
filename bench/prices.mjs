// What Cloudflare charges on the Workers Paid plan beyond what the plan includes, in US dollars.
// As known on 2026-11-30, some from others' copies of the page named beside each price: look there before relying on it.

export const read = "2026-11-30";

const million = 1_000_000;

/** What is counted, what one of it costs, and where that stands. */
export const prices = {
  "worker requests": { each: 0.3 / million, says: "$0.30 a million", page: "developers.cloudflare.com/workers/platform/pricing" },
  "object requests": { each: 0.15 / million, says: "$0.15 a million, alarms included", page: "developers.cloudflare.com/durable-objects/platform/pricing" },
  "object milliseconds": { each: (12.5 * 0.128) / 1000 / million, says: "$12.50 a million GB-s of 128 MB each", page: "developers.cloudflare.com/durable-objects/platform/pricing" },
  "object rows read": { each: 0.001 / million, says: "$0.001 a million", page: "developers.cloudflare.com/durable-objects/platform/pricing" },
  "object rows written": { each: 1 / million, says: "$1.00 a million, an alarm that is set is one", page: "developers.cloudflare.com/durable-objects/platform/pricing" },
  "d1 rows read": { each: 0.001 / million, says: "$0.001 a million", page: "developers.cloudflare.com/d1/platform/pricing" },
  "d1 rows written": { each: 1 / million, says: "$1.00 a million", page: "developers.cloudflare.com/d1/platform/pricing" },
  "kv reads": { each: 0.5 / million, says: "$0.50 a million", page: "developers.cloudflare.com/kv/platform/pricing" },
  "kv writes": { each: 5 / million, says: "$5.00 a million", page: "developers.cloudflare.com/kv/platform/pricing" },
  "kv deletes": { each: 5 / million, says: "$5.00 a million", page: "developers.cloudflare.com/kv/platform/pricing" },
  "kv lists": { each: 5 / million, says: "$5.00 a million", page: "developers.cloudflare.com/kv/platform/pricing" },
  "queue operations": { each: 0.4 / million, says: "$0.40 a million", page: "developers.cloudflare.com/queues/platform/pricing" },
};

/** Dollars a million calls, given what one call asks for. */
export function perMillion(counts) {
  const asked = Object.entries({ "worker requests": 1, ...counts });
  return asked.reduce((sum, [what, number]) => sum + (prices[what]?.each ?? 0) * number * million, 0);
}
