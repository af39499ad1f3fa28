import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { t } from '../i18n';
import { day } from '../lib/format';
import { languageTag, theme } from '../lib/prefs';
import { Table } from './table';

export type Colour = '--chart-1' | '--chart-2' | '--chart-3' | '--chart-4' | '--chart-5' | '--chart-bad';

export interface Series {
  label: string;
  values: (number | null)[];
  colour: Colour;
  kind: 'line' | 'bars';
  /** Where the drawn value is a sum (stacked bars): the values to name instead. */
  named?: (number | null)[];
}

interface ChartProps {
  /** What the chart shows, said to those who cannot see it; its numbers are in the table below it. */
  title: string;
  /** Days as `YYYY-MM-DD`, ascending. */
  dates: string[];
  series: Series[];
  format(value: number): string;
}

const HEIGHT_PX = 200;
const HALF_A_DAY_S = 43_200;

const systemIsDark = matchMedia('(prefers-color-scheme: dark)');
const systemScheme = signal(systemIsDark.matches);
systemIsDark.addEventListener('change', (event) => (systemScheme.value = event.matches));

export function Chart({ title, dates, series, format }: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const legend = useRef<HTMLDivElement>(null);
  const drawn = JSON.stringify([dates, series, languageTag(), theme.value, systemScheme.value]);

  useEffect(() => {
    const [plotHost, legendHost] = [host.current, legend.current];
    if (!plotHost || !legendHost) return;
    const plot = new uPlot(options(plotHost, legendHost, series, format), columns(dates, series), plotHost);
    const watcher = new ResizeObserver(() => plot.setSize({ width: plotHost.clientWidth, height: HEIGHT_PX }));
    watcher.observe(plotHost);
    return () => {
      watcher.disconnect();
      plot.destroy();
      legendHost.replaceChildren();
    };
  }, [drawn]);

  return (
    <figure class="chart">
      <div ref={host} class="chart-plot" role="img" aria-label={title} />
      <div ref={legend} class="chart-legend" aria-hidden="true" />
      <details>
        <summary>{t('chart.asTable')}</summary>
        <Table
          caption={title}
          rows={dates.map((date, index) => ({ date, index }))}
          rowKey={(row) => row.date}
          columns={[
            { label: t('col.date'), names: true, cell: (row) => row.date },
            ...series.map((one) => ({
              label: one.label,
              number: true,
              cell: (row: { date: string; index: number }) => named(one, row.index, format),
            })),
          ]}
        />
      </details>
    </figure>
  );
}

function columns(dates: string[], series: Series[]): uPlot.AlignedData {
  return [dates.map((date) => Date.parse(`${date}T00:00:00Z`) / 1000), ...series.map((one) => one.values)];
}

function options(
  host: HTMLElement,
  legendHost: HTMLElement,
  series: Series[],
  format: (value: number) => string,
): uPlot.Options {
  const axis = {
    stroke: colourOf(host, '--ink-muted'),
    font: '12px system-ui, sans-serif',
    grid: { stroke: colourOf(host, '--line'), width: 1 },
    ticks: { show: false },
  };
  return {
    width: host.clientWidth,
    height: HEIGHT_PX,
    // Days are counted in UTC; in the browser's own zone they would slip by one.
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    scales: {
      x: { range: (_plot, min, max) => [min - HALF_A_DAY_S, max + HALF_A_DAY_S] },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    cursor: { y: false, drag: { x: false, y: false } },
    legend: { mount: (_plot, element) => legendHost.replaceChildren(element) },
    axes: [
      {
        ...axis,
        size: 32,
        space: 64,
        incrs: [1, 2, 5, 7, 14].map((days) => days * 2 * HALF_A_DAY_S),
        values: (_plot, ticks) => ticks.map((seconds) => day(seconds * 1000)),
      },
      { ...axis, size: 56, values: (_plot, ticks) => ticks.map(format) },
    ],
    series: [
      { label: t('col.date'), value: (_plot, seconds) => (seconds === null ? '–' : day(seconds * 1000)) },
      ...series.map((one) => seriesOptions(host, one, format)),
    ],
  };
}

function seriesOptions(host: HTMLElement, one: Series, format: (value: number) => string): uPlot.Series {
  const colour = colourOf(host, one.colour);
  const shared: uPlot.Series = {
    label: one.label,
    stroke: colour,
    value: (_plot, _raw, _series, index) => (index === null ? '–' : named(one, index, format)),
  };
  if (one.kind === 'bars') {
    const paths = uPlot.paths.bars?.({ size: [0.7, 28] });
    return { ...shared, fill: colour, width: 0, points: { show: false }, ...(paths ? { paths } : {}) };
  }
  return { ...shared, width: 2, points: { show: true, size: 6 } };
}

function named(one: Series, index: number, format: (value: number) => string): string {
  const value = (one.named ?? one.values)[index];
  return value === null || value === undefined ? '–' : format(value);
}

// A canvas cannot use `var()`: the browser resolves the colour on a real element first.
function colourOf(host: HTMLElement, name: string): string {
  host.style.color = `var(${name})`;
  const colour = getComputedStyle(host).color;
  host.style.color = '';
  return colour;
}

/** Every day from `from` to `to`, both included, as `YYYY-MM-DD`. */
export function daysBetween(fromMs: number, toMs: number): string[] {
  const days: string[] = [];
  for (let ms = fromMs; ms <= toMs; ms += 86_400_000) days.push(new Date(ms).toISOString().slice(0, 10));
  const last = new Date(toMs).toISOString().slice(0, 10);
  return days.at(-1) === last ? days : [...days, last];
}
