import { waitUntil } from "cloudflare:workers";

/** The event that is under way now lives on until `task` has ended, or for 30 s beyond its answer. */
export function goOn(task) {
  waitUntil(task);
}

/**
 * Tasks of Rust's futures run as reactions of a promise. workerd's own `queueMicrotask` does the same, but makes a new
 * function object of every task and runs it through its wrapper.
 */
export function runTasksAsReactions() {
  globalThis.queueMicrotask = (task) => void Promise.resolve().then(task);
}
