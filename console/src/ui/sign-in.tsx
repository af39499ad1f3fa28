import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { toApiError, tryCredential, type ApiError } from '../lib/api';
import type { Session } from '../lib/session';
import { TextField } from './field';
import { Logo } from './logo';
import { Preferences } from './preferences';
import { ErrorState } from './states';

interface SignInProps {
  session: Session;
  title: string;
  lead: string;
  label: string;
  hint: string;
  /** A cheap route that answers only to a good credential. */
  probe: string;
}

export function SignIn({ session, title, lead, label, hint, probe }: SignInProps) {
  const [value, setValue] = useState('');
  const [error, setError] = useState<ApiError | null>(null);
  const [pending, setPending] = useState(false);

  const submit = async (event: Event) => {
    event.preventDefault();
    const credential = value.trim();
    if (credential === '' || pending) return;
    setPending(true);
    setError(null);
    try {
      await tryCredential(credential, probe);
      session.signIn(credential);
    } catch (cause) {
      setError(toApiError(cause));
    } finally {
      setPending(false);
    }
  };

  document.title = `${title} · ${t('app.name')}`;
  return (
    <main class="sign-in">
      <div class="card sign-in-card">
        <div class="brand">
          <Logo />
          <div class="brand-name">{t('app.name')}</div>
        </div>
        <div>
          <h1>{title}</h1>
          <p class="muted">{lead}</p>
        </div>
        {session.expired.value && !error && (
          <p class="notice notice-warn" role="status">
            {t('signIn.expired')}
          </p>
        )}
        <form class="stack" onSubmit={submit}>
          <TextField label={label} hint={hint} value={value} onChange={setValue} secret required />
          {error && <ErrorState error={error} />}
          <button type="submit" class="button button-main" disabled={pending}>
            {pending ? t('signIn.pending') : t('signIn.submit')}
          </button>
        </form>
        <Preferences />
      </div>
    </main>
  );
}
