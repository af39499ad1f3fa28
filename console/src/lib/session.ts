import { signal, type ReadonlySignal } from '@preact/signals';

/** A credential kept for this tab only: `sessionStorage` ends with the tab and is shared with no other. */
export interface Session {
  credential: ReadonlySignal<string | null>;
  /** Whether the gateway stopped accepting the credential since it was entered. */
  expired: ReadonlySignal<boolean>;
  signIn(credential: string): void;
  signOut(): void;
  expire(): void;
}

export function createSession(storageKey: string): Session {
  const credential = signal<string | null>(read(storageKey));
  const expired = signal(false);
  const forget = () => {
    write(storageKey, null);
    credential.value = null;
  };
  return {
    credential,
    expired,
    signIn(value) {
      write(storageKey, value);
      expired.value = false;
      credential.value = value;
    },
    signOut() {
      expired.value = false;
      forget();
    },
    expire() {
      expired.value = true;
      forget();
    },
  };
}

function read(key: string): string | null {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, value: string | null): void {
  try {
    if (value === null) sessionStorage.removeItem(key);
    else sessionStorage.setItem(key, value);
  } catch {
    return;
  }
}
