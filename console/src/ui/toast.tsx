import { signal } from '@preact/signals';

const message = signal<string | null>(null);
let timer: ReturnType<typeof setTimeout> | undefined;

const SHOWN_MS = 5000;

/** Says briefly that something was done. Failures are shown where they happened instead. */
export function toast(text: string): void {
  clearTimeout(timer);
  message.value = text;
  timer = setTimeout(() => (message.value = null), SHOWN_MS);
}

/** Where toasts appear; present from the start, so that screen readers announce what is put in. */
export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {message.value !== null && <p class="toast">{message.value}</p>}
    </div>
  );
}
