// A user on a plan of their own, for tests that need just one.
import { Caller } from "./callers.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
let serial = 0;

/** Plan, user and key; `plan` as the operator's API takes it: what is absent is unlimited. */
export async function newCaller(gateway, plan = {}) {
  const plan_id = `plan-${++serial}-${Math.random().toString(36).slice(2, 8)}`;
  await gateway.createPlan({ plan_id, ...plan });
  const user_id = await gateway.createUser({ user_id: `user-of-${plan_id}`, plan_id });
  const key = await gateway.createKey(user_id);
  return new Chatter(gateway, user_id, plan_id, key);
}

class Chatter extends Caller {
  /** One chat call; `json` adds to the body. */
  chat(json = {}, rest = {}) {
    return this.post("/v1/chat/completions", { ...hello, ...json }, rest);
  }

  embed() {
    return this.post("/v1/embeddings", { model: "m-small", input: "hi" });
  }
}
