import { t, tn } from '../../i18n';
import { diffValues } from '../../lib/diff';
import { readAudit, type AuditEntry } from '../../lib/model';
import { asPage } from '../../lib/read';
import { useListing } from '../../lib/resource';
import { Changes } from '../../ui/changes';
import { Moment } from '../../ui/moment';
import { Card, Page } from '../../ui/page';
import { Empty } from '../../ui/states';
import { ListTable } from '../../ui/table';
import { api } from '../gateway';

export function AuditPage() {
  const entries = useListing<AuditEntry>('audit', async (cursor, signal) =>
    asPage(await api.call('GET', '/admin/audit', { query: { cursor }, ...(signal ? { signal } : {}) }), readAudit),
  );
  return (
    <Page title={t('nav.audit')} lead={t('audit.lead')}>
      <Card title={t('audit.list')}>
        <ListTable
          of={entries}
          caption={t('audit.list')}
          rowKey={(entry) => entry.id}
          empty={<Empty title={t('audit.none')}>{t('audit.none.hint')}</Empty>}
          columns={[
            { label: t('col.time'), names: true, cell: (entry) => <Moment at={entry.atMs} /> },
            { label: t('col.actor'), cell: (entry) => entry.actor },
            { label: t('col.action'), cell: (entry) => <code>{entry.action}</code> },
            { label: t('col.target'), cell: (entry) => <span class="breakable">{entry.target}</span> },
            { label: t('col.change'), cell: (entry) => <Change entry={entry} /> },
          ]}
        />
      </Card>
    </Page>
  );
}

function Change({ entry }: { entry: AuditEntry }) {
  // Made or removed as a whole: compare with nothing, so that each field gets its own line.
  const changes = diffValues(entry.before ?? {}, entry.after ?? {}).filter(({ path }) => path !== '');
  if (changes.length === 0) return <span class="muted">–</span>;
  return (
    <details>
      <summary>{tn('audit.fields', changes.length)}</summary>
      <Changes caption={t('col.change')} changes={changes} />
    </details>
  );
}
