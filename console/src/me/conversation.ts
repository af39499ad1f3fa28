import { useEffect, useRef, useState } from 'preact/hooks';
import { isAbort, toApiError, type ApiError } from '../lib/api';
import { queueChat, streamChat, type ChatEnd, type ChatMessage, type ChatRequest } from '../lib/chat';
import { isOpenJob, completionText, readJob, type Job } from '../lib/model';
import { isRetryable, MAX_AUTOMATIC_RETRIES, startCountdown, waitOf, withJitter } from '../lib/retry';
import { api } from './gateway';

/** How one answer is coming along. */
export type Phase =
  | { name: 'streaming' }
  | { name: 'done'; end: ChatEnd | null }
  | { name: 'stopped' }
  | { name: 'waiting'; error: ApiError; leftMs: number; attempt: number }
  | { name: 'failed'; error: ApiError; unqueued?: boolean }
  | { name: 'queueing' }
  | { name: 'queued'; job: Job };

export interface Turn {
  question: string;
  settings: Settings;
  answer: string;
  phase: Phase;
}

export interface Settings {
  model: string;
  maxTokens: number | null;
}

export interface Conversation {
  turns: Turn[];
  /** Whether an answer is on its way, so that nothing new can be asked. */
  busy: boolean;
  ask(question: string, settings: Settings): void;
  /** Ends whatever is going on: a stream, or the wait for the next try. */
  stop(): void;
  /** Sends the last question again right away. */
  retry(): void;
  /** Hands the last question to the queue instead. */
  queue(): void;
  clear(): void;
}

const JOB_POLL_MS = 3000;

/** A chat that waits out refusals by itself. `onSpent` is called whenever a call may have cost something. */
export function useConversation(onSpent: () => void): Conversation {
  const [turns, setTurns] = useState<Turn[]>([]);
  // Ends the current stream, countdown or poll.
  const end = useRef<() => void>(() => undefined);
  const latest = useRef(turns);
  latest.current = turns;
  useEffect(() => () => end.current(), []);

  const update = (change: (last: Turn) => Turn) =>
    setTurns((all) => all.map((turn, index) => (index === all.length - 1 ? change(turn) : turn)));
  const enter = (phase: Phase) => update((turn) => ({ ...turn, phase }));

  const stream = async (asked: Turn[], attempt: number) => {
    const abort = new AbortController();
    end.current = () => abort.abort();
    update((turn) => ({ ...turn, answer: '', phase: { name: 'streaming' } }));
    try {
      const done = await streamChat(api, requestOf(asked), abort.signal, (text) =>
        update((turn) => ({ ...turn, answer: turn.answer + text })),
      );
      enter({ name: 'done', end: done });
    } catch (cause) {
      if (abort.signal.aborted || isAbort(cause)) return;
      refused(asked, toApiError(cause), attempt);
    } finally {
      onSpent();
    }
  };

  const refused = (asked: Turn[], error: ApiError, attempt: number) => {
    if (!isRetryable(error.status) || attempt > MAX_AUTOMATIC_RETRIES) return enter({ name: 'failed', error });
    const wait = withJitter(waitOf(error, Date.now()), Math.random);
    end.current = startCountdown(
      wait,
      (leftMs) => enter({ name: 'waiting', error, leftMs, attempt }),
      () => void stream(asked, attempt + 1),
    );
  };

  const follow = (jobId: string) => {
    const abort = new AbortController();
    end.current = () => abort.abort();
    const look = async () => {
      try {
        const job = readJob(await api.call('GET', `/api/jobs/${encodeURIComponent(jobId)}`, { signal: abort.signal }));
        update((turn) => ({ ...turn, answer: completionText(job.result) ?? '', phase: { name: 'queued', job } }));
        if (!isOpenJob(job)) return onSpent();
      } catch (cause) {
        if (abort.signal.aborted || isAbort(cause)) return;
        const error = toApiError(cause);
        // One missed look is no reason to give up on a job that goes on by itself.
        if (!error.unreachable && !isRetryable(error.status)) return enter({ name: 'failed', error });
      }
      const timer = setTimeout(look, JOB_POLL_MS);
      end.current = () => {
        clearTimeout(timer);
        abort.abort();
      };
    };
    void look();
  };

  return {
    turns,
    busy: isBusy(turns.at(-1)),
    ask(question, settings) {
      end.current();
      const asked: Turn[] = [...turns, { question, settings, answer: '', phase: { name: 'streaming' } }];
      setTurns(asked);
      void stream(asked, 1);
    },
    stop() {
      end.current();
      // A refusal stays on show with what else can be done about it.
      update(({ phase, ...turn }) => ({
        ...turn,
        phase: phase.name === 'waiting' ? { name: 'failed', error: phase.error } : { name: 'stopped' },
      }));
    },
    retry() {
      end.current();
      void stream(latest.current, 1);
    },
    async queue() {
      end.current();
      enter({ name: 'queueing' });
      try {
        const { jobId, text } = await queueChat(api, requestOf(latest.current));
        if (jobId !== null) return follow(jobId);
        update((turn) => ({ ...turn, answer: text ?? '', phase: { name: 'done', end: null } }));
      } catch (cause) {
        enter({ name: 'failed', error: toApiError(cause), unqueued: true });
      }
      onSpent();
    },
    clear() {
      end.current();
      setTurns([]);
    },
  };
}

function isBusy(turn: Turn | undefined): boolean {
  if (turn === undefined) return false;
  return turn.phase.name === 'streaming' || turn.phase.name === 'waiting' || turn.phase.name === 'queueing';
}

function requestOf(turns: Turn[]): ChatRequest {
  const open = turns.at(-1);
  if (open === undefined) throw new TypeError('Nothing was asked.');
  return { ...open.settings, messages: messagesOf(turns) };
}

/** The messages of a request: earlier turns that were answered, then the open question. */
export function messagesOf(turns: Pick<Turn, 'question' | 'answer'>[]): ChatMessage[] {
  return turns.flatMap((turn, index): ChatMessage[] => {
    const question: ChatMessage = { role: 'user', content: turn.question };
    if (index === turns.length - 1) return [question];
    return turn.answer === '' ? [] : [question, { role: 'assistant', content: turn.answer }];
  });
}
