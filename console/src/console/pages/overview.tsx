import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { t, tn, isKey } from '../../i18n';
import { gatewayNowOnce } from '../../lib/clock';
import { compact, dateTime, number, percent, policyName } from '../../lib/format';
import { planPage, userPage } from '../../lib/links';
import { JOB_STATUSES, readAlert, readJob, readStats, type Alert, type Counts, type EndpointCounts, type Job, type Stats } from '../../lib/model';
import { asPage } from '../../lib/read';
import { useListing, useResource } from '../../lib/resource';
import { Chart, daysBetween, type Colour } from '../../ui/chart';
import { Badge, Card, Page } from '../../ui/page';
import { Empty, Loaded } from '../../ui/states';
import { Table } from '../../ui/table';
import { rfc3339 } from '../../ui/usage-chart';
import { api, LARGEST_PAGE } from '../gateway';

const DAY_MS = 86_400_000;
const POLL_MS = 30_000;
const PERIODS = [1, 7, 30] as const;
const SERIES_COLOURS: Colour[] = ['--chart-1', '--chart-2', '--chart-3', '--chart-4', '--chart-5'];

interface Range {
  fromMs: number;
  toMs: number;
}

export function OverviewPage() {
  const [days, setDays] = useState<number>(7);
  const stats = useResource(
    `stats ${days}`,
    async (signal) => {
      const range = rangeOf(days);
      const query = { from: rfc3339(range.fromMs), to: rfc3339(range.toMs) };
      return { range, stats: readStats(await api.call('GET', '/admin/stats', { query, signal })) };
    },
    POLL_MS,
  );
  return (
    <Page title={t('nav.overview')} lead={t('overview.lead')} actions={<PeriodPicker days={days} onPick={setDays} />}>
      <AlertsCard />
      <Loaded of={stats}>
        {(data) => (
          <>
            <Totals totals={data.stats.totals} />
            <Traffic stats={data.stats} range={data.range} />
            <PlansCard stats={data.stats} />
            <div class="grid-2">
              <TopUsers stats={data.stats} />
              <EndpointsCard stats={data.stats} />
            </div>
            <JobsCard />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function rangeOf(days: number): Range {
  const toMs = gatewayNowOnce();
  return { fromMs: Math.floor(toMs / DAY_MS) * DAY_MS - (days - 1) * DAY_MS, toMs };
}

function PeriodPicker({ days, onPick }: { days: number; onPick(days: number): void }) {
  return (
    <div class="segments" role="group" aria-label={t('overview.period')}>
      {PERIODS.map((period) => (
        <button key={period} type="button" aria-pressed={period === days} onClick={() => onPick(period)}>
          {period === 1 ? t('overview.today') : tn('overview.days', period)}
        </button>
      ))}
    </div>
  );
}

function Totals({ totals }: { totals: Counts }) {
  const tiles: [string, string][] = [
    [t('col.allowed'), compact(totals.allowed)],
    [t('col.refused'), compact(totals.refused)],
    [t('col.refusalRate'), percent(totals.refusalRate)],
    [t('col.tokens'), compact(totals.tokens)],
    [t('col.degraded'), compact(totals.degraded)],
    [t('col.queued'), compact(totals.queued)],
    [t('col.failedOpen'), compact(totals.failedOpen)],
  ];
  return (
    <dl class="tiles" aria-label={t('overview.totals')}>
      {tiles.map(([label, value]) => (
        <div key={label} class="tile">
          <dt class="small muted">{label}</dt>
          <dd class="figure">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Traffic({ stats, range }: { stats: Stats; range: Range }) {
  if (stats.days.length === 0) {
    return (
      <Card title={t('overview.traffic')}>
        <Empty title={t('overview.quiet')}>{t('overview.quiet.hint')}</Empty>
      </Card>
    );
  }
  const dates = daysBetween(range.fromMs, range.toMs);
  const sumOf = (date: string, field: 'allowed' | 'refused') =>
    stats.days.filter((row) => row.date === date).reduce((sum, row) => sum + row[field], 0);
  const allowed = dates.map((date) => sumOf(date, 'allowed'));
  const refused = dates.map((date) => sumOf(date, 'refused'));
  return (
    <div class="grid-2">
      <Card title={t('overview.traffic')}>
        <Chart
          title={t('overview.traffic.chart')}
          dates={dates}
          format={compact}
          series={[
            { label: t('col.refused'), kind: 'bars', colour: '--chart-bad', values: dates.map((_, i) => (allowed[i] ?? 0) + (refused[i] ?? 0)), named: refused },
            { label: t('col.allowed'), kind: 'bars', colour: '--chart-1', values: allowed },
          ]}
        />
      </Card>
      <Card title={t('overview.rate')} hint={t('overview.rate.hint')}>
        <Chart title={t('overview.rate.chart')} dates={dates} format={percent} series={rateSeries(stats, dates)} />
      </Card>
    </div>
  );
}

/** The refusal rate of the busiest plans; a day without calls has none. */
function rateSeries(stats: Stats, dates: string[]) {
  const traffic = new Map<string, number>();
  for (const row of stats.days) traffic.set(row.planId, (traffic.get(row.planId) ?? 0) + row.allowed + row.refused);
  const busiest = [...traffic].sort((a, b) => b[1] - a[1]).slice(0, SERIES_COLOURS.length);
  return busiest.map(([planId], index) => ({
    label: planId,
    kind: 'line' as const,
    colour: SERIES_COLOURS[index] ?? '--chart-1',
    values: dates.map((date) => {
      const row = stats.days.find((one) => one.date === date && one.planId === planId);
      const calls = row ? row.allowed + row.refused : 0;
      return row && calls > 0 ? row.refused / calls : null;
    }),
  }));
}

function PlansCard({ stats }: { stats: Stats }) {
  return (
    <Card title={t('overview.byPlan')}>
      {stats.plans.length === 0 ? (
        <Empty title={t('overview.quiet')} />
      ) : (
        <Table
          caption={t('overview.byPlan')}
          rows={stats.plans}
          rowKey={(row) => row.planId}
          columns={[
            { label: t('col.plan'), names: true, cell: (row) => <Link href={planPage(row.planId)}>{row.planId}</Link> },
            ...countColumns<Stats['plans'][number]>(),
            { label: t('col.reasons'), cell: (row) => <Reasons by={row.refusedBy} /> },
            { label: t('col.degraded'), number: true, cell: (row) => number(row.degraded) },
            { label: t('col.queued'), number: true, cell: (row) => number(row.queued) },
            { label: t('col.tokens'), number: true, cell: (row) => compact(row.tokens) },
          ]}
        />
      )}
    </Card>
  );
}

function EndpointsCard({ stats }: { stats: Stats }) {
  return (
    <Card title={t('overview.byEndpoint')}>
      {stats.endpoints.length === 0 ? (
        <Empty title={t('overview.quiet')} />
      ) : (
        <Table
          caption={t('overview.byEndpoint')}
          rows={stats.endpoints}
          rowKey={(row) => row.name}
          columns={[
            { label: t('col.endpoint'), names: true, cell: (row) => <span class="breakable">{row.name}</span> },
            ...countColumns<EndpointCounts>(),
          ]}
        />
      )}
    </Card>
  );
}

function countColumns<T extends Pick<EndpointCounts, 'allowed' | 'refused' | 'refusalRate'>>() {
  return [
    { label: t('col.allowed'), number: true, cell: (row: T) => (row.allowed === null ? '–' : number(row.allowed)) },
    { label: t('col.refused'), number: true, cell: (row: T) => number(row.refused) },
    { label: t('col.refusalRate'), number: true, cell: (row: T) => percent(row.refusalRate) },
  ];
}

function Reasons({ by }: { by: Record<string, number> }) {
  const reasons = Object.entries(by)
    .filter(([, n]) => n > 0)
    .sort((a, b) => b[1] - a[1]);
  if (reasons.length === 0) return <span class="muted">–</span>;
  return (
    <ul class="chips">
      {reasons.map(([reason, n]) => (
        <li key={reason}>
          <Badge>
            {policyName(reason)} <strong>{number(n)}</strong>
          </Badge>
        </li>
      ))}
    </ul>
  );
}

function AlertsCard() {
  const alerts = useListing<Alert>(
    'alerts',
    async (cursor, signal) =>
      asPage(await api.call('GET', '/admin/alerts', { query: { status: 'open', cursor }, ...(signal ? { signal } : {}) }), readAlert),
    POLL_MS,
  );
  const open = alerts.data?.filter((alert) => alert.closedAtMs === null) ?? [];
  return (
    <Card title={t('overview.alerts')}>
      <Loaded of={alerts}>
        {() =>
          open.length === 0 ? (
            <p class="muted">{t('overview.alerts.none')}</p>
          ) : (
            <ul class="stack-s">
              {open.map((alert) => (
                <li key={alert.id} class="notice notice-warn">
                  <div>
                    <p>
                      <strong>{alertName(alert.kind)}</strong> {alert.subject}
                    </p>
                    <p class="small">
                      {alert.detail && <span lang="en">{alert.detail} · </span>}
                      {alert.openedAtMs !== null && t('overview.alerts.since', { time: dateTime(alert.openedAtMs) })}
                    </p>
                  </div>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </Card>
  );
}

function alertName(kind: string): string {
  const key = `alert.${kind}`;
  return isKey(key) ? t(key) : kind;
}

function TopUsers({ stats }: { stats: Stats }) {
  return (
    <Card title={t('overview.topUsers')}>
      {stats.topUsers.length === 0 ? (
        <Empty title={t('overview.quiet')} />
      ) : (
        <Table
          caption={t('overview.topUsers')}
          rows={stats.topUsers}
          rowKey={(row) => row.userId}
          columns={[
            { label: t('col.user'), names: true, cell: (row) => <Link href={userPage(row.userId)}>{row.userId}</Link> },
            { label: t('col.plan'), cell: (row) => row.planId },
            { label: t('col.calls'), number: true, cell: (row) => number(row.calls) },
            { label: t('col.tokens'), number: true, cell: (row) => compact(row.tokens) },
            { label: t('col.refused'), number: true, cell: (row) => number(row.rejected) },
          ]}
        />
      )}
    </Card>
  );
}

function JobsCard() {
  const jobs = useResource(
    'jobs',
    async (signal) => asPage(await api.call('GET', '/admin/jobs', { query: { limit: LARGEST_PAGE }, signal }), readJob),
    POLL_MS,
  );
  return (
    <Card title={t('nav.jobs')} hint={t('overview.jobs.hint', { n: LARGEST_PAGE })} actions={<Link href="/jobs">{t('overview.jobs.all')}</Link>}>
      <Loaded of={jobs}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title={t('jobs.none')} />
          ) : (
            <dl class="facts">
              {JOB_STATUSES.map((status) => (
                <div key={status}>
                  <dt>{t(`job.${status}`)}</dt>
                  <dd>{number(countOf(items, status))}</dd>
                </div>
              ))}
            </dl>
          )
        }
      </Loaded>
    </Card>
  );
}

function countOf(jobs: Job[], status: Job['status']): number {
  return jobs.filter((job) => job.status === status).length;
}
