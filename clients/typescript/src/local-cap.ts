const minute = 60_000;
const mostUsers = 10_000;

/** So many calls a minute and user, counted in this process: all there is while the gateway is out. */
export class LocalCap {
  readonly #perMinute: number;
  readonly #now: () => number;
  readonly #passed = new Map<string, { since: number; calls: number }>();

  constructor(perMinute: number, now: () => number = Date.now) {
    this.#perMinute = perMinute;
    this.#now = now;
  }

  /** Takes one call of the user's minute: whether there was one left, and the seconds until the next minute. */
  take(userId: string): { allowed: boolean; waitSeconds: number } {
    const now = this.#now();
    const seen = this.#current(userId, now);
    if (!seen) return { allowed: false, waitSeconds: 60 };
    const waitSeconds = Math.max(1, Math.ceil((seen.since + minute - now) / 1000));
    const allowed = seen.calls < this.#perMinute;
    if (allowed) seen.calls += 1;
    return { allowed, waitSeconds };
  }

  /** The user's count of this minute; undefined: more users call than can be counted. */
  #current(userId: string, now: number): { since: number; calls: number } | undefined {
    const seen = this.#passed.get(userId);
    if (seen && now - seen.since < minute) return seen;
    if (!seen && this.#passed.size >= mostUsers) this.#forgetOld(now);
    if (!seen && this.#passed.size >= mostUsers) return undefined;
    const fresh = { since: now, calls: 0 };
    this.#passed.set(userId, fresh);
    return fresh;
  }

  #forgetOld(now: number): void {
    for (const [user, { since }] of this.#passed) if (now - since >= minute) this.#passed.delete(user);
  }
}
