import { Clock, ListPlus, RefreshCw } from 'lucide-preact';
import { t } from '../i18n';
import type { ApiError } from '../lib/api';
import { gatewayNow } from '../lib/clock';
import { isoDuration } from '../lib/duration';
import { duration, number, policyName } from '../lib/format';
import type { Job, NextPlan } from '../lib/model';
import { isQuotaSpent } from '../lib/retry';
import { JobBadge } from '../ui/job-badge';
import { ErrorState } from '../ui/states';
import type { Conversation, Turn } from './conversation';
import { useMine } from './gateway';

interface AnswerProps {
  turn: Turn;
  /** Only the last answer can still be acted on. */
  isLast: boolean;
  conversation: Conversation;
}

/** One answer: its text, and under it how it is coming along. */
export function Answer({ turn, isLast, conversation }: AnswerProps) {
  return (
    <div class="stack-s">
      {turn.answer !== '' && (
        <div class="bubble">
          <span class="visually-hidden">{t('playground.answer')}</span>
          {turn.answer}
        </div>
      )}
      <Status turn={turn} isLast={isLast} conversation={conversation} />
    </div>
  );
}

function Status({ turn, isLast, conversation }: AnswerProps) {
  const { phase } = turn;
  switch (phase.name) {
    case 'streaming':
      return turn.answer === '' ? <p class="small muted typing">{t('playground.thinking')}</p> : null;
    case 'queueing':
      return <p class="small muted typing">{t('playground.queueing')}</p>;
    case 'stopped':
      return (
        <div class="row">
          <p class="small muted">{t('playground.stopped')}</p>
          {isLast && <AgainButton conversation={conversation} />}
        </div>
      );
    case 'waiting':
      return <Waiting error={phase.error} leftMs={phase.leftMs} attempt={phase.attempt} conversation={conversation} />;
    case 'failed':
      return <Failed error={phase.error} unqueued={phase.unqueued ?? false} isLast={isLast} conversation={conversation} />;
    case 'queued':
      return <Queued job={phase.job} />;
    case 'done':
      return <Done turn={turn} />;
  }
}

function Done({ turn }: { turn: Turn }) {
  if (turn.phase.name !== 'done' || turn.phase.end === null) return null;
  const { decision, model, totalTokens, finishReason } = turn.phase.end;
  const facts = [model, totalTokens === null ? null : t('playground.tokens', { n: number(totalTokens) })].filter(Boolean);
  return (
    <div class="stack-s">
      {facts.length > 0 && <p class="small muted">{facts.join(' · ')}</p>}
      {decision === 'degraded' && <p class="notice notice-warn small">{t('playground.degraded')}</p>}
      {finishReason === 'length' && <p class="notice notice-warn small">{t('playground.cutOff')}</p>}
    </div>
  );
}

function AgainButton({ conversation }: { conversation: Conversation }) {
  return (
    <button type="button" class="button button-small" onClick={conversation.retry}>
      <RefreshCw aria-hidden="true" size={16} />
      {t('playground.again')}
    </button>
  );
}

function QueueButton({ conversation }: { conversation: Conversation }) {
  return (
    <button type="button" class="button button-small" onClick={conversation.queue}>
      <ListPlus aria-hidden="true" size={16} />
      {t('playground.queue')}
    </button>
  );
}

interface WaitingProps {
  error: ApiError;
  leftMs: number;
  attempt: number;
  conversation: Conversation;
}

/** A refusal being waited out: what ran out, how long it takes, and what else can be done. */
function Waiting({ error, leftMs, attempt, conversation }: WaitingProps) {
  return (
    <div class="notice notice-warn">
      <Clock aria-hidden="true" size={20} />
      <div class="stack-s">
        <p role="alert">
          <strong>{whatRanOut(error)}</strong> {t('playground.waiting.text')}
        </p>
        <p class="countdown">
          <time dateTime={isoDuration(leftMs)} role="timer" aria-live="off">
            {t('playground.waiting', { time: duration(leftMs) })}
          </time>
          {attempt > 1 && <span class="small muted"> {t('playground.attempt', { n: number(attempt) })}</span>}
        </p>
        <div class="row">
          <button type="button" class="button button-small" onClick={conversation.retry}>
            <RefreshCw aria-hidden="true" size={16} />
            {t('playground.retryNow')}
          </button>
          <button type="button" class="button button-small" onClick={conversation.stop}>
            {t('playground.cancelRetry')}
          </button>
          {isQuotaSpent(error) && <QueueButton conversation={conversation} />}
        </div>
        {isQuotaSpent(error) && <PlanHint policy={error.policy} />}
      </div>
    </div>
  );
}

function whatRanOut(error: ApiError): string {
  if (error.status !== 429) return t('playground.overloaded');
  if (error.policy === null) return t('playground.ranOut');
  const name = policyName(error.policy);
  if (error.limit === null) return t('playground.ranOut.policy', { policy: name });
  return t('playground.ranOut.limit', { policy: name, limit: number(error.limit) });
}

function PlanHint({ policy }: { policy: string | null }) {
  const { quota } = useMine();
  const next = quota.data?.nextPlan ?? null;
  return <p class="small">{next === null ? t('playground.upgrade') : nextPlanText(next, policy)}</p>;
}

function nextPlanText(next: NextPlan, policy: string | null): string {
  if (policy === null || !(policy in next.limits)) return t('playground.upgrade.plan', { plan: next.name });
  const limit = next.limits[policy] ?? null;
  const allows = limit === null ? t('field.unlimited') : number(limit);
  return t('playground.upgrade.limit', { plan: next.name, policy: policyName(policy), limit: allows });
}

interface FailedProps {
  error: ApiError;
  /** Whether it was the queue that would not have it. */
  unqueued: boolean;
  isLast: boolean;
  conversation: Conversation;
}

function Failed({ error, unqueued, isLast, conversation }: FailedProps) {
  return (
    <div class="stack-s">
      <ErrorState error={error} />
      {unqueued && error.status === 429 && <p class="small">{t('playground.unqueued')}</p>}
      {isLast && (
        <div class="row">
          <AgainButton conversation={conversation} />
          {isQuotaSpent(error) && !unqueued && <QueueButton conversation={conversation} />}
        </div>
      )}
      {isQuotaSpent(error) && <PlanHint policy={error.policy} />}
    </div>
  );
}

function Queued({ job }: { job: Job }) {
  const left = job.notBeforeMs === null ? 0 : job.notBeforeMs - gatewayNow();
  return (
    <div class="job">
      <div class="row">
        <span>{t('playground.job')}</span>
        <code class="breakable">{job.id}</code>
        <JobBadge status={job.status} />
      </div>
      {job.status === 'queued' && (
        <p class="small muted">{left > 0 ? t('myJobs.startsIn', { time: duration(left) }) : t('playground.job.hint')}</p>
      )}
      {job.errorText && (
        <p class="small" lang="en">
          {job.errorText}
        </p>
      )}
    </div>
  );
}
