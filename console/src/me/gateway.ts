import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import { Api } from '../lib/api';
import { noteGatewayTime } from '../lib/clock';
import { readNotice, readQuota, type Notice, type Quota } from '../lib/model';
import { asPage } from '../lib/read';
import type { Listing, Resource } from '../lib/resource';
import { createSession } from '../lib/session';
import type { Conversation } from './conversation';

/** The caller's sign-in and the gateway as the caller sees it. */
export const session = createSession('sluice.api-key');
export const api = new Api(session);

export async function loadQuota(signal: AbortSignal): Promise<Quota> {
  const quota = readQuota(await api.call('GET', '/api/quota', { signal }));
  noteGatewayTime(quota.asOfMs);
  return quota;
}

export async function loadNotices(cursor: string | null, signal?: AbortSignal) {
  const body = await api.call('GET', '/api/notifications', { query: { cursor }, ...(signal ? { signal } : {}) });
  return asPage(body, readNotice);
}

/** What several pages show at once, loaded once. */
export interface Mine {
  quota: Resource<Quota>;
  notices: Listing<Notice>;
  /** Kept above the pages: a wait for the next try goes on while another page is open. */
  conversation: Conversation;
}

const MineContext = createContext<Mine | null>(null);

export const MineProvider = MineContext.Provider;

export function useMine(): Mine {
  const mine = useContext(MineContext);
  if (mine === null) throw new Error('useMine needs a MineProvider above it');
  return mine;
}
