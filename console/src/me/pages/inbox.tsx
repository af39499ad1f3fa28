import { useState } from 'preact/hooks';
import { t, isKey } from '../../i18n';
import { toApiError, type ApiError } from '../../lib/api';
import { percent, policyName } from '../../lib/format';
import type { Notice } from '../../lib/model';
import { Moment } from '../../ui/moment';
import { Badge, Card, Page } from '../../ui/page';
import { Empty, ErrorState, Loaded } from '../../ui/states';
import { api, useMine } from '../gateway';

export function InboxPage() {
  const { notices } = useMine();
  const [error, setError] = useState<ApiError | null>(null);
  const markRead = async (marked: Notice[]) => {
    setError(null);
    try {
      await Promise.all(
        marked.map((notice) => api.call('POST', `/api/notifications/${encodeURIComponent(notice.id)}/read`)),
      );
    } catch (cause) {
      setError(toApiError(cause));
    }
    notices.reload();
  };
  const unread = notices.data?.filter((notice) => !notice.read) ?? [];
  return (
    <Page
      title={t('nav.inbox')}
      lead={t('inbox.lead')}
      actions={
        unread.length > 1 && (
          <button type="button" class="button" onClick={() => markRead(unread)}>
            {t('inbox.readAll')}
          </button>
        )
      }
    >
      {error && <ErrorState error={error} />}
      <Card title={t('inbox.list')}>
        <Loaded of={notices}>
          {(rows) =>
            rows.length === 0 ? (
              <Empty title={t('inbox.none')}>{t('inbox.none.hint')}</Empty>
            ) : (
              <ul class="inbox">
                {rows.map((notice) => (
                  <li key={notice.id}>
                    <Message notice={notice} onRead={() => markRead([notice])} />
                  </li>
                ))}
              </ul>
            )
          }
        </Loaded>
        {notices.hasMore && (
          <button type="button" class="button" disabled={notices.loadingMore} onClick={notices.loadMore}>
            {t('action.loadMore')}
          </button>
        )}
      </Card>
    </Page>
  );
}

function Message({ notice, onRead }: { notice: Notice; onRead(): void }) {
  const title = titleOf(notice);
  return (
    <article class={notice.read ? 'message' : 'message message-unread'}>
      <div>
        <h3>
          {title} {!notice.read && <Badge tone="info">{t('inbox.new')}</Badge>}
        </h3>
        {notice.text && notice.text !== title && <p lang="en">{notice.text}</p>}
        <p class="small muted">
          <Moment at={notice.createdAtMs} none="" />
        </p>
      </div>
      {!notice.read && (
        <button type="button" class="button button-small" aria-label={t('inbox.read.one', { title })} onClick={onRead}>
          {t('inbox.read')}
        </button>
      )}
    </article>
  );
}

// A crossing is told in the reader's language; anything else in the words it came with.
function titleOf(notice: Notice): string {
  if (notice.policy !== null && notice.share !== null) {
    const text = notice.share >= 1 ? 'inbox.spent' : 'inbox.crossed';
    return t(text, { policy: policyName(notice.policy), share: percent(notice.share) });
  }
  const key = `notice.${notice.kind}`;
  return notice.title ?? (isKey(key) ? t(key) : null) ?? notice.text ?? notice.kind;
}
