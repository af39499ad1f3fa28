import { signal } from '@preact/signals';

let timer: ReturnType<typeof setInterval> | undefined;

const browserNow = signal(Date.now(), {
  watched() {
    this.value = Date.now();
    timer = setInterval(() => (this.value = Date.now()), 1000);
  },
  unwatched() {
    clearInterval(timer);
  },
});

/** How far the gateway's clock is ahead of this browser's, in milliseconds. */
const ahead = signal(0);

// Network delay alone makes the clocks look this different; below it they count as equal.
const TOLERANCE_MS = 2000;

/** Learns the gateway's clock from a time it has just answered with. */
export function noteGatewayTime(asOfMs: number | null): void {
  if (asOfMs === null) return;
  const difference = asOfMs - Date.now();
  ahead.value = Math.abs(difference) < TOLERANCE_MS ? 0 : difference;
}

/** The gateway's time, ticking once a second while a component reads it. */
export function gatewayNow(): number {
  return browserNow.value + ahead.value;
}

/** The gateway's time right now, without subscribing to the tick. */
export function gatewayNowOnce(): number {
  return Date.now() + ahead.peek();
}
