import { Send, Square, Trash2 } from 'lucide-preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { t } from '../../i18n';
import { asPage, asRecord, asText } from '../../lib/read';
import { useResource } from '../../lib/resource';
import { LimitField, SelectField } from '../../ui/field';
import { Meters } from '../../ui/meter';
import { Card, Page } from '../../ui/page';
import { Empty, ErrorState, Loaded } from '../../ui/states';
import type { Conversation, Settings } from '../conversation';
import { api, useMine } from '../gateway';
import { Answer } from '../answer';

export function PlaygroundPage() {
  const { quota, conversation } = useMine();
  const models = useResource('models', loadModels);
  const [chosen, setModel] = useState<string | null>(null);
  const [maxTokens, setMaxTokens] = useState<number | null>(null);
  const model = chosen ?? models.data?.[0] ?? null;
  return (
    <Page
      title={t('nav.playground')}
      lead={t('playground.lead')}
      actions={
        conversation.turns.length > 0 && (
          <button type="button" class="button" onClick={conversation.clear}>
            <Trash2 aria-hidden="true" size={16} />
            {t('playground.clear')}
          </button>
        )
      }
    >
      <div class="playground">
        <section class="card chat" aria-label={t('playground.chat')}>
          <Turns conversation={conversation} />
          <Composer conversation={conversation} settings={model === null ? null : { model, maxTokens }} />
        </section>
        <div class="stack">
          <Card title={t('playground.settings')}>
            <div class="stack-s">
              {models.error && <ErrorState error={models.error} onRetry={models.reload} />}
              <SelectField
                label={t('col.model')}
                hint={models.data?.length === 0 ? t('playground.noModel') : undefined}
                value={model ?? ''}
                onChange={setModel}
                options={(models.data ?? []).map((id) => ({ value: id, label: id }))}
              />
              <LimitField
                label={t('playground.maxTokens')}
                nullLabel={t('playground.maxTokens.plan')}
                value={maxTokens}
                onChange={setMaxTokens}
              />
            </div>
          </Card>
          <Card title={t('usage.limits')}>
            <Loaded of={quota}>{(data) => <Meters policies={data.policies} onReset={quota.reload} />}</Loaded>
          </Card>
        </div>
      </div>
    </Page>
  );
}

function Turns({ conversation }: { conversation: Conversation }) {
  const { turns } = conversation;
  const bottom = useRef<HTMLDivElement>(null);
  const last = turns.at(-1);
  useEffect(() => {
    const log = bottom.current?.parentElement;
    const turn = bottom.current?.previousElementSibling;
    if (!log || !turn) return;
    const follow = new ResizeObserver(() => {
      log.scrollTop = log.scrollHeight;
    });
    follow.observe(turn);
    return () => follow.disconnect();
  }, [turns.length]);
  const streaming = last?.phase.name === 'streaming';
  return (
    // Busy until the answer is complete: a screen reader then reads it once, not word by word.
    <div class="turns" role="log" aria-label={t('playground.log')} aria-busy={streaming} tabIndex={0}>
      {turns.length === 0 && <Empty title={t('playground.empty')}>{t('playground.empty.hint')}</Empty>}
      {turns.map((turn, index) => (
        <div key={index} class="turn">
          <div class="bubble bubble-mine">
            <span class="visually-hidden">{t('playground.you')}</span>
            {turn.question}
          </div>
          <Answer turn={turn} isLast={index === turns.length - 1} conversation={conversation} />
        </div>
      ))}
      <div ref={bottom} />
    </div>
  );
}

/** Where a question is written. It stays there until there are `settings` to send it with. */
function Composer({ conversation, settings }: { conversation: Conversation; settings: Settings | null }) {
  const [text, setText] = useState('');
  const send = (event: Event) => {
    event.preventDefault();
    if (text.trim() === '' || conversation.busy || settings === null) return;
    conversation.ask(text.trim(), settings);
    setText('');
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // While a Chinese word is being composed, Enter picks the word.
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) send(event);
  };
  return (
    <form class="composer" onSubmit={send}>
      <textarea
        rows={2}
        aria-label={t('playground.message')}
        placeholder={t('playground.message.placeholder')}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {conversation.busy ? (
        <button type="button" class="button" onClick={conversation.stop}>
          <Square aria-hidden="true" size={16} />
          {t('playground.stop')}
        </button>
      ) : (
        <button type="submit" class="button button-main" disabled={text.trim() === '' || settings === null}>
          <Send aria-hidden="true" size={16} />
          {t('playground.send')}
        </button>
      )}
    </form>
  );
}

async function loadModels(signal: AbortSignal): Promise<string[]> {
  const body = await api.call('GET', '/v1/models', { signal });
  return asPage(body, (row) => asText(asRecord(row)['id']) ?? '').items.filter(Boolean);
}
