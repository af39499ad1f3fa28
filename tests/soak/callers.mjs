// The callers of a soak: users on different plans, by the SDKs and by raw HTTP, who sometimes hang up.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { setTimeout as pause } from "node:timers/promises";

const patience = 20_000;
/** Most completion tokens that a call asks for. */
export const bound = 48;

/** Plans of the soak's users, as the operator's API takes them. */
export const plans = [
  { plan_id: "soak-daily", daily_limit: 150, monthly_token_limit: 10_000_000 },
  { plan_id: "soak-tokens", daily_limit: null, monthly_token_limit: 9_000 },
  { plan_id: "soak-degrade", daily_limit: 60, monthly_token_limit: 10_000_000, over_quota: { strategy: "degrade", degrade_model: "m-cheap", degrade_daily_limit: 40 } },
  { plan_id: "soak-queue", daily_limit: 80, monthly_token_limit: 10_000_000, over_quota: { strategy: "queue", queue_limit: 60 } },
  { plan_id: "soak-closed", daily_limit: 100_000, monthly_token_limit: 10_000_000, on_outage: "closed", max_concurrent: 3, tokens_per_minute: 20_000 },
  { plan_id: "soak-short", daily_limit: 100_000, monthly_token_limit: 10_000_000, rate: { capacity: 20, refill_per_minute: 300 }, window: { max_requests: 400, minutes: 60 } },
];

/** Lets callers call, or holds them back until everybody has waited for their last call's end. */
export class Gate {
  #open = Promise.resolve();
  #let = () => {};
  #inside = new Set();
  #closed = false;
  #over = false;

  open() {
    this.#closed = false;
    this.#let();
  }

  /** Nobody calls any more. */
  end() {
    this.#over = true;
    this.#let();
  }

  /** Resolves when no call is under way any more. */
  async close() {
    if (!this.#closed) this.#open = new Promise((resolve) => (this.#let = resolve));
    this.#closed = true;
    while (this.#inside.size > 0) await Promise.all(this.#inside);
  }

  /** One call, once the gate is open; `false` if it was the end. */
  async pass(call) {
    while (this.#closed && !this.#over) await this.#open;
    if (this.#over) return false;
    const under = call().finally(() => this.#inside.delete(under));
    this.#inside.add(under);
    await under;
    return true;
  }
}

/**
 * Calls as one user until the gate says that it is over; every call becomes a record in `records`:
 * {mark, user, kind, began, ended, status, decision, requestId, result, job, aborted}; result is ok, refused, failed,
 * queued, left (the caller hung up) or broken; `aborted`: the caller went before they had seen the end.
 */
export async function callAs(user, { gateway, gate, rng, records }) {
  const ways = [raw, raw, rawStream, rawStream, openai, openaiStream, anthropic, anthropicStream, query];
  const call = async () => {
    const way = user.plan_id === "soak-queue" ? rng.pick([query, query, raw]) : rng.pick(ways);
    // Marks of one length, so that all prompts are estimated alike.
    const record = { mark: markOf(records.length), user: user.user_id, kind: way.name, began: Date.now(), hangUp: way !== query && rng.chance(0.08), aborted: false };
    records.push(record);
    const leave = new AbortController();
    leave.signal.addEventListener("abort", () => (record.aborted = record.ended === undefined));
    const timers = [setTimeout(() => leave.abort(), patience)];
    if (record.hangUp) timers.push(setTimeout(() => leave.abort(), rng.between(5, 120)));
    record.signal = leave.signal;
    // A client whose connection died with the runtime may never be told.
    const silence = pause(patience + 5_000, undefined, { ref: false });
    try {
      await Promise.race([way(user, record, gateway), silence.then(() => Promise.reject(new Error("no end")))]);
    } catch (error) {
      failed(record, error);
    }
    record.ended = Date.now();
    timers.forEach(clearTimeout);
  };
  while (await gate.pass(call)) await pause(rng.between(20, 250));
}

/** Names the n-th call. */
export const markOf = (n) => `call-${String(n).padStart(6, "0")}`;
/** What the call of this name says. */
export const promptOf = (mark) => `${mark} says hello`;

const prompt = (record) => promptOf(record.mark);
const headersOf = (record) => ({ "x-soak-mark": record.mark });
const messages = (record) => [{ role: "user", content: prompt(record) }];

async function post(user, path, json, record, gateway) {
  const headers = { authorization: `Bearer ${user.key}`, "content-type": "application/json", ...headersOf(record) };
  const answer = await gateway.fetch(path, { method: "POST", headers, body: JSON.stringify(json), signal: record.signal });
  note(record, answer.status, answer.headers);
  return answer;
}

function note(record, status, headers) {
  record.status = status;
  record.decision = headers.get("x-sluice-decision");
  record.requestId = headers.get("x-request-id");
}

async function raw(user, record, gateway) {
  const answer = await post(user, "/v1/chat/completions", { model: "m-small", messages: messages(record), max_tokens: bound }, record, gateway);
  const body = JSON.parse(await answer.text());
  record.result = answer.ok ? "ok" : refusedOrFailed(answer.status, body);
}

async function rawStream(user, record, gateway) {
  const answer = await post(user, "/v1/chat/completions", { model: "m-small", messages: messages(record), max_tokens: bound, stream: true }, record, gateway);
  const text = await answer.text();
  if (!answer.ok) record.result = refusedOrFailed(answer.status, JSON.parse(text));
  else record.result = text.includes("[DONE]") ? "ok" : "broken";
}

async function query(user, record, gateway) {
  const answer = await post(user, "/api/ai/query", { prompt: prompt(record), model: "m-small", max_tokens: bound }, record, gateway);
  const body = JSON.parse(await answer.text());
  if (answer.status === 202) {
    record.result = "queued";
    record.job = body.id;
  } else record.result = answer.ok ? "ok" : refusedOrFailed(answer.status, body);
}

const openaiOf = (user, gateway) => new OpenAI({ apiKey: user.key, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
const anthropicOf = (user, gateway) => new Anthropic({ apiKey: user.key, baseURL: gateway.url, maxRetries: 0 });

async function openai(user, record, gateway) {
  const call = openaiOf(user, gateway).chat.completions.create({ model: "m-small", messages: messages(record), max_tokens: bound }, { signal: record.signal, headers: headersOf(record) });
  take(record, await call.withResponse());
  record.result = "ok";
}

async function openaiStream(user, record, gateway) {
  const call = openaiOf(user, gateway).chat.completions.create({ model: "m-small", messages: messages(record), max_tokens: bound, stream: true }, { signal: record.signal, headers: headersOf(record) });
  const { data } = take(record, await call.withResponse());
  let finish;
  for await (const chunk of data) finish = chunk.choices[0]?.finish_reason ?? finish;
  ended(record, finish);
}

async function anthropic(user, record, gateway) {
  const call = anthropicOf(user, gateway).messages.create({ model: "m-small", messages: messages(record), max_tokens: bound }, { signal: record.signal, headers: headersOf(record) });
  take(record, await call.withResponse());
  record.result = "ok";
}

async function anthropicStream(user, record, gateway) {
  const call = anthropicOf(user, gateway).messages.create({ model: "m-small", messages: messages(record), max_tokens: bound, stream: true }, { signal: record.signal, headers: headersOf(record) });
  const { data } = take(record, await call.withResponse());
  let last;
  for await (const event of data) last = event.type;
  ended(record, last === "message_stop");
}

/** An SDK ends its stream without a word when it is aborted. */
function ended(record, whole) {
  record.result = whole ? "ok" : record.hangUp ? "left" : "broken";
}

function take(record, answer) {
  note(record, answer.response.status, answer.response.headers);
  return answer;
}

/** 429 is also what a provider's own 429 becomes; the provider's record tells them apart. */
function refusedOrFailed(status, body) {
  return [401, 403, 429].includes(status) && body.error ? "refused" : "failed";
}

function failed(record, error) {
  record.why = String(error.message ?? error).slice(0, 120);
  if (error.status && error.headers) {
    note(record, error.status, error.headers);
    record.result = refusedOrFailed(error.status, { error: true });
  } else record.result = record.hangUp ? "left" : "broken";
}
