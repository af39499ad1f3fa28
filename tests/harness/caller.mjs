// A user on a plan of their own, for tests that need just one.
const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
let serial = 0;

/** Plan, user and key; `plan` as the operator's API takes it: what is absent is unlimited. */
export async function newCaller(gateway, plan = {}) {
  const plan_id = `plan-${++serial}-${Math.random().toString(36).slice(2, 8)}`;
  await gateway.createPlan({ plan_id, ...plan });
  const user_id = await gateway.createUser({ user_id: `user-of-${plan_id}`, plan_id });
  const key = await gateway.createKey(user_id);
  return new Caller(gateway, plan_id, user_id, key);
}

class Caller {
  constructor(gateway, plan_id, user_id, key) {
    Object.assign(this, { gateway, plan_id, user_id, key });
  }

  /** One chat call; `json` adds to the body. */
  chat(json = {}, rest = {}) {
    return this.gateway.call("/v1/chat/completions", { key: this.key, json: { ...hello, ...json }, ...rest });
  }

  embed() {
    return this.gateway.call("/v1/embeddings", { key: this.key, json: { model: "m-small", input: "hi" } });
  }

  /** One policy as /api/quota shows it, or undefined. */
  async policy(name) {
    const answer = await this.gateway.call("/api/quota", { key: this.key });
    if (answer.status !== 200) throw new Error(`quota: ${answer.status} ${answer.text}`);
    return answer.body.policies.find((policy) => policy.name === name);
  }
}
