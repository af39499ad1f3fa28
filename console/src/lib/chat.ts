import { createParser } from 'eventsource-parser';
import { Api, ApiError } from './api';
import { completionText } from './model';
import { asArray, asNumber, asRecord, asText } from './read';

export interface ChatMessage {
  role: 'user' | 'assistant';
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  maxTokens: number | null;
}

export interface ChatEnd {
  /** The gateway's `X-Sluice-Decision`: `degraded` means a cheaper model answered. */
  decision: string | null;
  model: string | null;
  totalTokens: number | null;
  finishReason: string | null;
}

/** Streams a chat completion, handing over each piece of text as it arrives. */
export async function streamChat(
  api: Api,
  request: ChatRequest,
  signal: AbortSignal,
  onText: (text: string) => void,
): Promise<ChatEnd> {
  const response = await api.open('POST', '/v1/chat/completions', {
    body: { ...body(request), stream: true, stream_options: { include_usage: true } },
    signal,
  });
  const end: ChatEnd = {
    decision: response.headers.get('x-sluice-decision'),
    model: null,
    totalTokens: null,
    finishReason: null,
  };
  const isStream = response.headers.get('content-type')?.includes('text/event-stream') ?? false;
  if (isStream && response.body) await readStream(response.body, end, onText);
  else takeWhole(await response.json(), end, onText);
  return end;
}

export interface Queued {
  /** The job, or `null` where the gateway answered at once. */
  jobId: string | null;
  text: string | null;
}

/** Asks for the same call to be done as soon as there is quota again. */
export async function queueChat(api: Api, request: ChatRequest): Promise<Queued> {
  const answer = await api.answer('POST', '/api/ai/query', {
    body: body(request),
    headers: { prefer: 'respond-async' },
  });
  if (answer.status === 202) return { jobId: asText(asRecord(answer.body)['id']), text: null };
  return { jobId: null, text: completionText(answer.body) ?? '' };
}

function body(request: ChatRequest): Record<string, unknown> {
  return {
    model: request.model,
    messages: request.messages,
    ...(request.maxTokens === null ? {} : { max_tokens: request.maxTokens }),
  };
}

async function readStream(stream: ReadableStream<Uint8Array>, end: ChatEnd, onText: (text: string) => void) {
  const parser = createParser({ onEvent: (event) => takeChunk(event.data, end, onText) });
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    // Ends the call when a chunk was an error: the gateway then stops the provider too.
    reader.cancel().catch(() => undefined);
  }
}

function takeChunk(data: string, end: ChatEnd, onText: (text: string) => void): void {
  if (data === '[DONE]') return;
  const chunk = asRecord(JSON.parse(data));
  if (chunk['error']) throw new ApiError(0, chunk);
  const choice = asRecord(asArray(chunk['choices'])[0]);
  const text = asText(asRecord(choice['delta'])['content']);
  if (text !== null) onText(text);
  end.finishReason = asText(choice['finish_reason']) ?? end.finishReason;
  takeFacts(chunk, end);
}

function takeWhole(answer: unknown, end: ChatEnd, onText: (text: string) => void): void {
  onText(completionText(answer) ?? '');
  end.finishReason = asText(asRecord(asArray(asRecord(answer)['choices'])[0])['finish_reason']);
  takeFacts(asRecord(answer), end);
}

function takeFacts(answer: Record<string, unknown>, end: ChatEnd): void {
  end.model = asText(answer['model']) ?? end.model;
  end.totalTokens = asNumber(asRecord(answer['usage'])['total_tokens']) ?? end.totalTokens;
}
