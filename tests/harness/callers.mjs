// Users for tests of what a call costs: each on a plan of their own.
import assert from "node:assert/strict";
import { eventually } from "./eventually.mjs";

let serial = 0;

/** Makes callers of one gateway. */
export function callersOf(gateway) {
  /** A user whose plan limits nothing that `plan` does not name, but tokens, so that they are reserved. */
  return async function caller(plan = {}) {
    const plan_id = `plan-${process.pid}-${++serial}`;
    await gateway.createPlan({ plan_id, daily_limit: 10_000, monthly_token_limit: 10_000_000, ...plan });
    const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
    return new Caller(gateway, user_id, plan_id, await gateway.createKey(user_id));
  };
}

/** One user, and what tests ask as them. */
export class Caller {
  constructor(gateway, user_id, plan_id, key) {
    Object.assign(this, { gateway, user_id, plan_id, key });
  }

  /** A POST of JSON, read to its end. */
  post(path, json, rest = {}) {
    return this.gateway.call(path, { key: this.key, json, ...rest });
  }

  /** A POST of JSON whose body is read as it comes. */
  open(path, json, init = {}) {
    const headers = { authorization: `Bearer ${this.key}`, "content-type": "application/json", ...init.headers };
    return this.gateway.fetch(path, { method: "POST", body: JSON.stringify(json), ...init, headers });
  }

  /** One policy of the quota page. */
  async policy(name) {
    const answer = await this.gateway.call("/api/quota", { key: this.key });
    assert.equal(answer.status, 200, answer.text);
    return answer.body.policies.find((policy) => policy.name === name);
  }

  /** The month, once nothing is reserved any more. */
  settled(ms) {
    return eventually(async () => {
      const month = await this.policy("monthly-tokens");
      assert.equal(month.reserved, 0);
      return month;
    }, ms);
  }

  /** Prompt and completion tokens of today by the ledger, once it has `calls` calls and agrees with the account. */
  async ledger(calls, ms) {
    const { used } = await this.settled(ms);
    return eventually(async () => {
      const [day] = await this.gateway.usageRows(this.user_id);
      assert.deepEqual([day?.calls, day?.total_tokens ?? day?.prompt_tokens + day?.completion_tokens], [calls, used]);
      return [day.prompt_tokens, day.completion_tokens];
    }, ms);
  }

  /** The ledger has exactly this. */
  async billed(calls, prompt, completion) {
    assert.deepEqual(await this.ledger(calls), [prompt, completion]);
  }
}

/** The events of a stream: the parsed JSON of each `data`, or its text. */
export function dataOf(text) {
  const data = [...text.matchAll(/^data: ?(.*)$/gm)].map(([, data]) => data);
  return data.map((data) => (data.startsWith("{") ? JSON.parse(data) : data));
}
