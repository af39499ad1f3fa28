import { t, isKey } from '../i18n';
import type { Change } from '../lib/diff';
import { number } from '../lib/format';
import type { Effect } from '../lib/plan-diff';
import { Badge, type Tone } from './page';
import { Table } from './table';

type ShownChange = Change & { effect?: Effect };

const TONES: Record<Effect, Tone> = { tighter: 'warn', looser: 'good', different: 'neutral' };

/** What differs between before and after, one line a field. */
export function Changes({ changes, caption }: { changes: ShownChange[]; caption: string }) {
  const judged = changes.some((change) => change.effect !== undefined);
  return (
    <Table
      caption={caption}
      rows={changes}
      rowKey={(change) => change.path}
      columns={[
        { label: t('col.field'), names: true, cell: (change) => fieldName(change.path) },
        { label: t('col.before'), cell: (change) => <del class="before">{valueText(change.path, change.before)}</del> },
        { label: t('col.after'), cell: (change) => <ins class="after">{valueText(change.path, change.after)}</ins> },
        ...(judged
          ? [{
              label: t('col.effect'),
              cell: ({ effect }: ShownChange) =>
                effect && <Badge tone={TONES[effect]}>{t(`effect.${effect}`)}</Badge>,
            }]
          : []),
      ]}
    />
  );
}

/** The name a form gives the field, or its path where no form knows it. */
function fieldName(path: string): string {
  const key = `field.${path}`;
  return isKey(key) ? t(key) : path || t('col.value');
}

/** A JSON value as a person would write it. */
function valueText(path: string, value: unknown): string {
  if (value === undefined) return '–';
  if (value === null) return t('value.null');
  if (path === 'window' && value === 'default') return t('field.window.default');
  if (typeof value === 'number') return number(value);
  if (typeof value === 'boolean') return value ? t('value.true') : t('value.false');
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.length === 0 ? t('value.none') : value.map((item) => itemText(path, item)).join(', ');
  return itemText(path, value);
}

function itemText(path: string, value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.entries(value)
    .map(([name, part]) => `${partName(path, name)}: ${typeof part === 'object' ? JSON.stringify(part) : String(part)}`)
    .join('; ');
}

function partName(path: string, name: string): string {
  const key = `field.${path}.${name}`;
  return isKey(key) ? t(key) : name;
}
