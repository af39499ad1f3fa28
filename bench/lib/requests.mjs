// The HTTP messages that are sent, and who sends how many of them.

const body = (more = {}) =>
  JSON.stringify({
    model: "bench",
    messages: [
      { role: "system", content: "You are a helpful assistant. Answer briefly and in plain words." },
      { role: "user", content: "Which of the two roads that part in the wood should a traveller take, and why does it matter?" },
    ],
    max_tokens: 300,
    temperature: 0.7,
    ...more,
  });

const whole = body();
const streamed = body({ stream: true });

/** A chat completion. */
export const chat = (key) => post("/v1/chat/completions", key, whole);

/** A chat completion in pieces. */
export const chatStream = (key) => post("/v1/chat/completions", key, streamed);

/** A service asks whether a user may go on. */
export const consume = (key, user_id) => post("/api/limits/consume", key, JSON.stringify({ user_id }));

function post(path, key, json) {
  const head = [
    `POST ${path} HTTP/1.1`,
    "host: gateway.example",
    `authorization: Bearer ${key}`,
    "content-type: application/json",
    "accept: application/json",
    "user-agent: OpenAI/JS 7.59.0",
    "x-stainless-lang: js",
    `content-length: ${Buffer.byteLength(json)}`,
  ];
  return `${head.join("\r\n")}\r\n\r\n${json}`;
}

/** `length` draws of 0…`kinds`-1, the nth as often as 1/n by Zipf's law; the same ones every time. */
export function zipf(kinds, length) {
  const shares = Array.from({ length: kinds }, (_, index) => 1 / (index + 1));
  const sums = [];
  shares.reduce((sum, share, index) => (sums[index] = sum + share), 0);
  const random = generator(20_260_622);
  return Array.from({ length }, () => {
    const drawn = random() * sums.at(-1);
    return Math.min(kinds - 1, sums.findIndex((sum) => sum > drawn));
  });
}

/** mulberry32. */
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
