// Reads what the Worker and an account say to each other (src/account/wire.rs), as far as it decides what calls cost.

const version = 3;

/** {user, ask: {name: fields}, ended: [{operation, used}]} of a message; `used` is [prompt, completion], or null where it was given back. */
export function readMessage(bytes) {
  const from = reader(bytes);
  const ask = from.one(asks);
  for (const field of [from.text, from.text]) from.maybe(field);
  for (const flag of [from.byte, from.byte, from.byte]) flag();
  const user = from.text();
  const ended = from.list(() => ({ operation: from.text(), used: outcome(from), took: took(from) }));
  return { user, ask, ended };
}

/** {name: fields} of an answer; {} of one that decides nothing. */
export const readAnswer = (bytes) => reader(bytes).one(answers);

function reader(bytes) {
  let at = 0;
  const byte = () => {
    if (at >= bytes.length) throw new Error("a message ends too soon");
    return bytes[at++];
  };
  /** Seven bits a byte, the lowest first. */
  const number = () => {
    let value = 0;
    for (let place = 1; ; place *= 128) {
      const part = byte();
      value += (part & 127) * place;
      if (part < 128) return value;
    }
  };
  const text = () => {
    const length = number();
    at += length;
    return new TextDecoder().decode(bytes.slice(at - length, at));
  };
  const maybe = (read) => (byte() === 1 ? read() : null);
  const list = (read) => Array.from({ length: number() }, read);
  const self = { byte, number, text, maybe, list };
  self.one = (kinds) => {
    const [name, read] = kinds[number()] ?? ["unknown", () => null];
    return { [name]: read(self) };
  };
  if (byte() !== version) throw new Error("messages of another version");
  return self;
}

const nothing = () => ({});
const outcome = (from) => (from.number() === 1 ? null : [from.number(), from.number(), from.byte()].slice(0, 2));
const took = (from) => [from.maybe(from.number), from.maybe(from.number)];
const row = (from) => from.list(() => from.maybe(from.number));
const end = (from) => ({ operation: from.text(), used: outcome(from) });

function call(from) {
  const operation = from.text();
  const dispatched = from.number() === 1;
  if (dispatched) [from.number(), from.maybe(from.number), from.number()];
  [from.number(), from.maybe(from.text), from.maybe(from.text)];
  from.maybe(() => [from.text(), from.maybe(from.number), from.maybe(() => from.list(from.text))]);
  from.number();
  return { operation, dispatched };
}

/** In the order of `Ask`. */
const asks = [
  ["admit", call],
  ["peek", call],
  ["settle", (from) => ({ ...end(from), took: took(from) })],
  ["conclude", end],
  ["checkpoint", (from) => [from.text(), from.number(), from.number(), from.number()]],
  ["view", nothing],
  ["adopt", (from) => from.text()],
  ["revoke", (from) => [from.text(), from.number()]],
  ["reset", (from) => from.list(from.text)],
  ["grant", (from) => [from.text(), from.number(), from.maybe(from.number)]],
  ["book_open", (from) => ({ operation: from.text(), booked: from.number(), used: [from.number(), from.number()], at: from.number() })],
  ["note_queued", (from) => from.text()],
  ["take_back", (from) => ({ lease: from.text(), row: row(from), open: from.list(() => [from.text(), row(from)][0]), waits: from.list(from.number), next: from.maybe(from.text) })],
  ["note_refused", (from) => [from.text(), from.list(() => [from.text(), from.number()])]],
  ["reconcile", nothing],
  ["hear", nothing],
];

/** {admission}, {refusedBy} of the policy that decides, or {}. */
function verdict(from) {
  const kind = from.number();
  if (kind === 0) return { admission: admission(from) };
  if (kind === 1) return { refusedBy: from.list(() => violation(from))[0] };
  rejection(from);
  return {};
}

const admission = (from) => ({ reservation: from.maybe(from.text), bounds: [from.maybe(from.number), from.maybe(from.number)], lane: ["main", "degraded"][from.number()], shadow: from.list(from.text), replayed: from.byte() });
const violation = (from) => [from.text(), from.number(), from.number(), from.number(), from.number(), from.number()][0];

function rejection(from) {
  const kind = from.number();
  if (kind === 2) from.number();
  if (kind === 3) [from.text(), from.number(), from.number()];
}

function standing(from) {
  [from.number(), from.text(), from.text()];
  [from.number(), from.maybe(from.text), from.maybe(from.number), from.maybe(from.number)];
  [from.number(), from.byte(), from.maybe(() => from.list(from.text))];
  from.list(() => [from.text(), ...Array.from({ length: 6 }, from.number), from.maybe(from.number), from.number()]);
}

function lease(from) {
  const [id, [calls, tokens, lasts]] = [from.text(), row(from)];
  [from.maybe(() => from.list(from.text)), from.list(from.text)];
  return { id, calls, tokens: tokens ?? 0, lasts };
}

/** In the order of `Answer`; those behind it decide nothing. */
const answers = [
  ["decided", (from) => ({ ...verdict(from), standing: standing(from), holds: from.maybe(from.number), lease: from.maybe(() => lease(from)) })],
  ["taken_back", (from) => ({ standing: standing(from), lease: from.maybe(() => lease(from)) })],
  ["stands", nothing],
  ["concluded", nothing],
  ["done", nothing],
  ...["key_revoked", "no_such_user", "no_room", "no_such_plan", "reconciled", "not_ready", "refused"].map((name) => [name, nothing]),
];
