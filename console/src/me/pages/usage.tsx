import { t, tn } from '../../i18n';
import { readKey, readUsageDay, type ApiKey } from '../../lib/model';
import { asPage } from '../../lib/read';
import { useListing, useResource } from '../../lib/resource';
import { Meters } from '../../ui/meter';
import { Moment } from '../../ui/moment';
import { Badge, Card, Page } from '../../ui/page';
import { Empty, Loaded } from '../../ui/states';
import { ListTable } from '../../ui/table';
import { UsageCharts, USAGE_DAYS, usageRange } from '../../ui/usage-chart';
import { api, useMine } from '../gateway';

export function UsagePage() {
  const { quota } = useMine();
  return (
    <Page title={t('nav.usage')} lead={t('usage.lead')} aside={quota.data && <Badge tone="info">{t('usage.plan', { plan: quota.data.planName })}</Badge>}>
      {quota.data?.blocked && (
        <p class="notice notice-bad" role="alert">
          {t('usage.blocked')}
        </p>
      )}
      <Card title={t('usage.limits')}>
        <Loaded of={quota}>{(data) => <Meters policies={data.policies} onReset={quota.reload} />}</Loaded>
      </Card>
      <HistoryCard />
      <KeysCard />
    </Page>
  );
}

function HistoryCard() {
  const usage = useResource('usage', async (signal) =>
    asPage(await api.call('GET', '/api/usage', { query: usageRange(), signal }), readUsageDay),
  );
  return (
    <Card title={tn('usage.title', USAGE_DAYS)}>
      <Loaded of={usage}>{({ items }) => <UsageCharts days={items} />}</Loaded>
    </Card>
  );
}

function KeysCard() {
  const keys = useListing<ApiKey>('keys', async (cursor, signal) =>
    asPage(await api.call('GET', '/api/keys', { query: { cursor }, ...(signal ? { signal } : {}) }), readKey),
  );
  return (
    <Card title={t('keys.title')} hint={t('keys.own.hint')}>
      <ListTable
        of={keys}
        caption={t('keys.title')}
        rowKey={(key) => key.keyId}
        empty={<Empty title={t('keys.own.none')} />}
        columns={[
          { label: t('col.key'), names: true, cell: (key) => <code>…{key.last4}</code> },
          { label: t('col.name'), cell: (key) => key.name ?? <span class="muted">–</span> },
          { label: t('col.created'), cell: (key) => <Moment at={key.createdAtMs} /> },
          { label: t('col.expires'), cell: (key) => <Moment at={key.expiresAtMs} none={t('keys.never')} /> },
        ]}
      />
    </Card>
  );
}
