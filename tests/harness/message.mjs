// What the Worker says to an account, as far as tests say it themselves or have to know what was said. The bytes are
// pinned in src/account/wire.rs.

const version = 3;
const asks = ["admit", "peek", "settle", "conclude", "checkpoint", "view", "adopt", "revoke", "reset", "grant", "book_open", "note_queued", "take_back", "note_refused", "reconcile", "hear"];

const answers = ["decided", "taken back", "stands", "concluded", "done", "key revoked", "no such user", "no room", "no such plan", "reconciled", "not ready", "refused"];

/** What a message asks, as one of the words above. */
export const asked = (bytes) => asks[bytes[1]];

/** What an account answers, as one of the words above; or that there was nothing to do. */
export const answered = (bytes) => (answers[bytes[1]] === "done" && bytes[2] === 0 ? "nothing to do" : answers[bytes[1]]);

/** A message to `user`'s account: `{ reset: [policy, …] }` or `{ adopt: row of the users table }`. */
export function message(user, { reset, adopt }) {
  const ask = reset ? [asks.indexOf("reset"), reset.length, ...reset.flatMap(text)] : [asks.indexOf("adopt"), ...text(JSON.stringify(adopt))];
  return new Uint8Array([version, ...ask, ...nobody, ...text(user), 0]);
}

/** No key, no plan, nobody to be created, no lease to be given, and not in silence. */
const nobody = [0, 0, 0, 0, 0];

/** A text with its length in front: seven bits a byte, the lowest first. */
function text(string) {
  const bytes = [...new TextEncoder().encode(string)];
  const length = bytes.length < 128 ? [bytes.length] : [(bytes.length & 127) | 128, bytes.length >> 7];
  return [...length, ...bytes];
}
