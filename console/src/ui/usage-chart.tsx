import { t } from '../i18n';
import { gatewayNowOnce } from '../lib/clock';
import { compact, number } from '../lib/format';
import type { UsageDay } from '../lib/model';
import { Chart, daysBetween } from './chart';
import { Empty } from './states';

export const USAGE_DAYS = 30;
const DAY_MS = 86_400_000;

/** The `from` and `to` of the last 30 days, in the form the gateway takes. */
export function usageRange(): { from: string; to: string } {
  const to = gatewayNowOnce();
  const from = Math.floor(to / DAY_MS) * DAY_MS - (USAGE_DAYS - 1) * DAY_MS;
  return { from: rfc3339(from), to: rfc3339(to) };
}

export function rfc3339(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}

/** Calls (made and refused) and tokens of the last 30 days. */
export function UsageCharts({ days }: { days: UsageDay[] }) {
  if (!days.some((day) => day.calls + day.rejected + day.tokens > 0)) {
    return <Empty title={t('usage.none')}>{t('usage.none.hint')}</Empty>;
  }
  const byDate = new Map(days.map((day) => [day.date, day]));
  const { from, to } = usageRange();
  const dates = daysBetween(Date.parse(from), Date.parse(to));
  const rows = dates.map((date) => byDate.get(date) ?? { date, calls: 0, rejected: 0, tokens: 0 });
  const rejected = rows.map((row) => row.rejected);
  return (
    <div class="grid-2">
      <Chart
        title={t('usage.calls')}
        dates={dates}
        format={number}
        series={[
          { label: t('col.refused'), kind: 'bars', colour: '--chart-bad', values: rows.map((row) => row.calls + row.rejected), named: rejected },
          { label: t('col.calls'), kind: 'bars', colour: '--chart-1', values: rows.map((row) => row.calls) },
        ]}
      />
      <Chart
        title={t('usage.tokens')}
        dates={dates}
        format={compact}
        series={[{ label: t('col.tokens'), kind: 'bars', colour: '--chart-2', values: rows.map((row) => row.tokens) }]}
      />
    </div>
  );
}
