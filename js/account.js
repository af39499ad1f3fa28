// One exchange with an account. In Rust every promise that is waited for and every timer costs a few closures, and an
// exchange has several of each.

/**
 * Asks a user's account: resolves to the bytes of its answer, to a text that says why there is none, or to undefined
 * once the budget in ms is used up. `again`: where the way to the account broke, the message is sent once more.
 */
export function ask(env, user, message, budget, again) {
  const bytes = message.slice();
  return new Promise((resolve) => {
    let over = false;
    const end = (told) => {
      over = true;
      clearTimeout(timer);
      resolve(told);
    };
    const timer = setTimeout(end, budget);
    const give = (error) => end(String(error));
    // Nobody waits for a message any more that breaks after its time, and what it asks for must not happen then.
    const retry = (error) => (again && !over && !overloaded(error) ? send(env, user, bytes).then(end, give) : give(error));
    send(env, user, bytes).then(end, retry);
  });
}

async function send(env, user, bytes) {
  return env.ACCOUNTS.getByName(user, placing(env)).ask(bytes);
}

/** Where the platform may place an object that is new; src/settings.rs knows the same names. */
const places = ["wnam", "enam", "sam", "weur", "eeur", "apac", "oc", "afr", "me"];
let placed;

/** Where new accounts are to be; by default near whoever asks first. */
function placing({ ACCOUNT_LOCATION: locationHint }) {
  placed ??= places.includes(locationHint) ? { locationHint } : {};
  return placed;
}

/** An account that says it has too much to do is left alone. */
const overloaded = (error) => error?.overloaded || String(error).includes("overloaded");

/** Sets the alarm of an account, so many ms from now. */
export function arm(state, wait) {
  state.storage.setAlarm(Date.now() + wait);
}

/** Writes one cell of an account's storage by the given statement. */
export function save(sql, statement, id, body) {
  sql.exec(statement, id, body);
}
