import type { ComponentChildren } from 'preact';
import { RefreshCw, TriangleAlert } from 'lucide-preact';
import { t, type Key } from '../i18n';
import type { ApiError } from '../lib/api';
import type { Resource } from '../lib/resource';

export function Loading() {
  return (
    <div class="loading" role="status">
      <span class="visually-hidden">{t('state.loading')}</span>
      <div class="skeleton" />
      <div class="skeleton" />
      <div class="skeleton" />
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="muted">{children}</div>}
    </div>
  );
}

/** What went wrong, what to do about it, and what the gateway said. */
export function ErrorState({ error, onRetry }: { error: ApiError; onRetry?: (() => void) | undefined }) {
  return (
    <div class="notice notice-bad" role="alert">
      <TriangleAlert aria-hidden="true" size={20} />
      <div class="stack-s">
        <p>
          <strong>{t(errorTitle(error))}</strong> {t(errorAdvice(error))}
        </p>
        {!error.unreachable && (
          <p class="small" lang="en">
            {error.message}
            {error.requestId && <code class="request-id">{error.requestId}</code>}
          </p>
        )}
        {onRetry && (
          <button type="button" class="button button-small" onClick={onRetry}>
            <RefreshCw aria-hidden="true" size={16} />
            {t('action.tryAgain')}
          </button>
        )}
      </div>
    </div>
  );
}

/** Shows a resource: loading, failed, or its data, with a note above it when refreshing it failed. */
export function Loaded<T>({ of, children }: { of: Resource<T>; children: (data: T) => ComponentChildren }) {
  if (of.data === null) {
    return of.error ? <ErrorState error={of.error} onRetry={of.reload} /> : <Loading />;
  }
  return (
    <>
      {of.error && <ErrorState error={of.error} onRetry={of.reload} />}
      {children(of.data)}
    </>
  );
}

const TITLES: Partial<Record<number, Key>> = {
  400: 'error.400.title',
  401: 'error.401.title',
  403: 'error.403.title',
  404: 'error.404.title',
  409: 'error.409.title',
  429: 'error.429.title',
};

const ADVICE: Partial<Record<number, Key>> = {
  400: 'error.400.advice',
  401: 'error.401.advice',
  403: 'error.403.advice',
  404: 'error.404.advice',
  409: 'error.409.advice',
  429: 'error.429.advice',
};

function errorTitle(error: ApiError): Key {
  if (error.unreachable) return 'error.network.title';
  return TITLES[error.status] ?? 'error.other.title';
}

function errorAdvice(error: ApiError): Key {
  if (error.unreachable) return 'error.network.advice';
  return ADVICE[error.status] ?? 'error.other.advice';
}
