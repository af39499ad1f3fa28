import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { isAbort, toApiError, type ApiError } from './api';
import type { Page } from './read';

export interface Resource<T> {
  data: T | null;
  error: ApiError | null;
  loading: boolean;
  reload(): void;
}

/** One whose owner may know better what there is now: a change answers with what it has become. */
export interface OwnResource<T> extends Resource<T> {
  replace(data: T): void;
}

type Load<T> = (signal: AbortSignal) => Promise<T>;

const LONGEST_POLL_MS = 60_000;

/**
 * Loads when the page opens and whenever `key` changes, and again every `everyMs` while the tab is
 * seen. Data stays on show while it is loaded again; failures in a row make the polling slower.
 */
export function useResource<T>(key: string, load: Load<T>, everyMs?: number): OwnResource<T> {
  const [state, setState] = useState<{ key: string; data: T | null; error: ApiError | null; loading: boolean }>({
    key,
    data: null,
    error: null,
    loading: true,
  });
  const [round, setRound] = useState(0);
  const latestLoad = useRef(load);
  latestLoad.current = load;
  const failures = useRef(0);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  const replace = useCallback((data: T) => setState({ key, data, error: null, loading: false }), [key]);

  useEffect(() => {
    const abort = new AbortController();
    setState((old) => ({ key, data: old.key === key ? old.data : null, error: null, loading: true }));
    latestLoad.current(abort.signal).then(
      (data) => {
        failures.current = 0;
        if (!abort.signal.aborted) setState({ key, data, error: null, loading: false });
      },
      (cause: unknown) => {
        if (abort.signal.aborted || isAbort(cause)) return;
        failures.current += 1;
        setState((old) => ({ ...old, error: toApiError(cause), loading: false }));
      },
    );
    return () => abort.abort();
  }, [key, round]);

  usePolling(reload, everyMs, state.loading, failures);
  const current = state.key === key;
  return {
    data: current ? state.data : null,
    error: current ? state.error : null,
    loading: !current || state.loading,
    reload,
    replace,
  };
}

function usePolling(
  reload: () => void,
  everyMs: number | undefined,
  loading: boolean,
  failures: { current: number },
): void {
  useEffect(() => {
    if (everyMs === undefined || loading) return;
    const wait = Math.min(LONGEST_POLL_MS, everyMs * 2 ** failures.current);
    const reloadIfSeen = () => {
      if (!document.hidden) reload();
    };
    const timer = setTimeout(reloadIfSeen, Math.max(wait, everyMs));
    document.addEventListener('visibilitychange', reloadIfSeen);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', reloadIfSeen);
    };
  }, [everyMs, loading, reload]);
}

export interface Listing<T> extends Resource<T[]> {
  hasMore: boolean;
  loadingMore: boolean;
  loadMore(): void;
}

/** A list that grows by its cursor: the first page as a resource, further pages on demand. */
export function useListing<T>(
  key: string,
  loadPage: (cursor: string | null, signal?: AbortSignal) => Promise<Page<T>>,
  everyMs?: number,
): Listing<T> {
  const [tail, setTail] = useState<{ key: string; items: T[]; next: string | null } | null>(null);
  const [loadingMore, setLoadingMore] = useState(false);
  const [moreError, setMoreError] = useState<ApiError | null>(null);
  // Polling replaces the first page only; once more pages are open it would tear the list.
  const first = useResource(key, (signal) => loadPage(null, signal), tail === null ? everyMs : undefined);
  const ownTail = tail?.key === key ? tail : null;
  const next = ownTail ? ownTail.next : (first.data?.nextCursor ?? null);

  const loadMore = () => {
    setLoadingMore(true);
    setMoreError(null);
    loadPage(next)
      .then((page) =>
        setTail({ key, items: [...(ownTail?.items ?? []), ...page.items], next: page.nextCursor }),
      )
      .catch((cause: unknown) => setMoreError(toApiError(cause)))
      .finally(() => setLoadingMore(false));
  };

  return {
    data: first.data && [...first.data.items, ...(ownTail?.items ?? [])],
    error: first.error ?? moreError,
    loading: first.loading,
    reload() {
      setTail(null);
      first.reload();
    },
    hasMore: next !== null,
    loadingMore,
    loadMore,
  };
}
