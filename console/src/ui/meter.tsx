import { useEffect } from 'preact/hooks';
import { t } from '../i18n';
import { gatewayNow, gatewayNowOnce } from '../lib/clock';
import { isoDuration } from '../lib/duration';
import { compact, dateTime, duration, number, percent, policyName } from '../lib/format';
import type { Policy } from '../lib/model';
import { Empty } from './states';

/** Every limit of one user, each with the time to its reset; asks anew when one resets. */
export function Meters({ policies, onReset }: { policies: Policy[]; onReset(): void }) {
  useNextReset(policies, onReset);
  if (policies.length === 0) return <Empty title={t('meter.none')}>{t('meter.none.hint')}</Empty>;
  return (
    <ul class="meters">
      {policies.map((policy) => (
        <li key={policy.name}>
          <Meter policy={policy} />
        </li>
      ))}
    </ul>
  );
}

function Meter({ policy }: { policy: Policy }) {
  const { limit, used, reserved } = policy;
  const share = limit === 0 ? 1 : used / limit;
  const name = policyName(policy.name);
  const text = t('meter.text', { used: number(used), limit: number(limit) });
  return (
    <div class={`meter meter-${tone(policy)}`}>
      <div class="meter-head">
        <h3>{name}</h3>
        <span class="small muted">{percent(share)}</span>
      </div>
      <p class="meter-figures">
        <span class="figure">{short(used)}</span>
        <span class="muted"> / {short(limit)} {t(`unit.${policy.unit}`)}</span>
      </p>
      <div
        class="bar"
        role="meter"
        aria-label={name}
        aria-valuemin={0}
        aria-valuemax={Math.max(limit, 1)}
        aria-valuenow={limit === 0 ? 1 : Math.min(used, limit)}
        aria-valuetext={text}
      >
        <div class="bar-used" style={{ width: width(used, limit) }} />
        <div class="bar-reserved" style={{ width: width(Math.min(reserved, Math.max(0, limit - used)), limit) }} />
      </div>
      <p class="meter-foot small muted">
        <span>
          {t('meter.remaining', { n: short(policy.remaining) })}
          {reserved > 0 && policy.kind !== 'concurrency' && ` · ${t('meter.reserved', { n: short(reserved) })}`}
        </span>
        <ResetIn policy={policy} />
      </p>
    </div>
  );
}

function ResetIn({ policy }: { policy: Policy }) {
  if (policy.resetsAtMs === null || policy.kind === 'concurrency') return null;
  const left = policy.resetsAtMs - gatewayNow();
  if (left <= 0) return policy.used === 0 ? null : <span>{t('meter.resetting')}</span>;
  const label = policy.kind === 'bucket' || policy.kind === 'sliding' ? 'meter.fullIn' : 'meter.resetsIn';
  return (
    <time dateTime={isoDuration(left)} title={dateTime(policy.resetsAtMs)} role="timer" aria-live="off">
      {t(label, { time: duration(left) })}
    </time>
  );
}

// After a reset passes, the answer may still be a moment behind: ask a little later, not at once.
const GRACE_MS = 1500;
// Polling refreshes far earlier than this; it keeps the timer below its overflow at 24.8 days.
const LONGEST_TIMER_MS = 86_400_000;

function useNextReset(policies: Policy[], onReset: () => void): void {
  const now = gatewayNowOnce();
  const coming = policies.flatMap(({ resetsAtMs }) => (resetsAtMs !== null && resetsAtMs > now ? [resetsAtMs] : []));
  const next = coming.length === 0 ? null : Math.min(...coming);
  useEffect(() => {
    if (next === null) return;
    const timer = setTimeout(onReset, Math.min(LONGEST_TIMER_MS, next - gatewayNowOnce() + GRACE_MS));
    return () => clearTimeout(timer);
  }, [next, onReset]);
}

function tone({ limit, remaining }: Policy): 'good' | 'warn' | 'bad' {
  if (remaining <= 0) return 'bad';
  return remaining <= limit * 0.2 ? 'warn' : 'good';
}

function short(n: number): string {
  return n >= 100_000 ? compact(n) : number(n);
}

function width(part: number, whole: number): string {
  if (whole === 0) return '100%';
  return `${Math.min(100, (part / whole) * 100)}%`;
}
