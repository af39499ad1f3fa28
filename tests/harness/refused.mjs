// Refusals by the hundred: users who call until they are refused, and how long they are told to wait.
import assert from "node:assert/strict";

/** A random number from 1 to `most`. */
export const upTo = (most) => 1 + Math.floor(Math.random() * most);

/** Runs `work` for every number below `count`, sixteen at a time. */
export async function each(count, work) {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: 16 }, worker));
}

/** Calls until refused; gives the whole seconds to wait. */
export async function exhaust(user) {
  for (let i = 0; i < 20; i++) {
    await Promise.all([user.chat(), user.chat(), user.chat()]);
    const answer = await user.chat();
    if (answer.status === 429) return waitOf(answer);
    assert.equal(answer.status, 200, answer.text);
  }
  throw new Error("was never refused");
}

function waitOf(answer) {
  const wait = answer.headers.get("retry-after");
  assert.match(wait, /^[1-9][0-9]*$/, answer.text);
  assert.equal(/;t=(\d+)/.exec(answer.headers.get("ratelimit"))[1], wait);
  return Number(wait);
}
