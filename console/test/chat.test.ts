import { afterEach, describe, expect, it, vi } from 'vitest';
import { Api, ApiError } from '../src/lib/api';
import { queueChat, streamChat } from '../src/lib/chat';
import { createSession } from '../src/lib/session';

const request = { model: 'm', messages: [{ role: 'user' as const, content: 'hi' }], maxTokens: null };

function apiAnswering(answer: () => Response) {
  const session = createSession('test');
  session.signIn('secret');
  const fetch = vi.fn(async (_url: string, _init: RequestInit) => answer());
  vi.stubGlobal('fetch', fetch);
  return { api: new Api(session), session, fetch };
}

function eventStream(...chunks: string[]): Response {
  const bytes = new TextEncoder().encode(chunks.join(''));
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      // One byte at a time: the hardest split there is, inside events and inside characters.
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  return new Response(stream, { headers: { 'content-type': 'text/event-stream', 'x-sluice-decision': 'degraded' } });
}

const chunk = (body: unknown) => `data: ${JSON.stringify(body)}\n\n`;

async function collect(api: Api) {
  let text = '';
  const end = await streamChat(api, request, new AbortController().signal, (piece) => (text += piece));
  return { text, end };
}

afterEach(() => vi.unstubAllGlobals());

describe('streamChat', () => {
  it('puts the answer together however the bytes are cut', async () => {
    const { api, fetch } = apiAnswering(() =>
      eventStream(
        ': ping\n\n',
        chunk({ model: 'm-1', choices: [{ delta: { content: '你好' } }] }),
        chunk({ choices: [{ delta: { content: ', sluice' }, finish_reason: 'length' }] }),
        chunk({ choices: [], usage: { total_tokens: 9 } }),
        'data: [DONE]\n\n',
      ),
    );
    expect(await collect(api)).toEqual({
      text: '你好, sluice',
      end: { decision: 'degraded', model: 'm-1', totalTokens: 9, finishReason: 'length' },
    });
    expect(fetch.mock.calls[0]?.[1].headers).toMatchObject({ authorization: 'Bearer secret' });
  });

  it('reads an answer that came whole', async () => {
    const { api } = apiAnswering(() => Response.json({ choices: [{ message: { content: 'whole' }, finish_reason: 'stop' }] }));
    expect((await collect(api)).text).toBe('whole');
  });

  it('fails with the error a stream carries', async () => {
    const { api } = apiAnswering(() => eventStream(chunk({ error: { message: 'provider broke', code: 'server_error' } })));
    await expect(collect(api)).rejects.toMatchObject({ message: 'provider broke', unreachable: false });
  });

  it('ends the session at a 401', async () => {
    const { api, session } = apiAnswering(() => Response.json({ error: { message: 'no' } }, { status: 401 }));
    await expect(collect(api)).rejects.toBeInstanceOf(ApiError);
    expect(session.credential.value).toBeNull();
    expect(session.expired.value).toBe(true);
  });
});

describe('queueChat', () => {
  it('asks for the queue and returns the job', async () => {
    const { api, fetch } = apiAnswering(() => Response.json({ id: 'job_1' }, { status: 202 }));
    expect(await queueChat(api, request)).toEqual({ jobId: 'job_1', text: null });
    expect(fetch.mock.calls[0]?.[0]).toBe('/api/ai/query');
    expect(fetch.mock.calls[0]?.[1].headers).toMatchObject({ prefer: 'respond-async' });
  });

  it('takes an answer that came at once', async () => {
    const { api } = apiAnswering(() => Response.json({ choices: [{ message: { content: 'now' } }] }));
    expect(await queueChat(api, request)).toEqual({ jobId: null, text: 'now' });
  });
});
