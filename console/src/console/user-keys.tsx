import { Plus } from 'lucide-preact';
import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { gatewayNow } from '../lib/clock';
import { readKey, type ApiKey } from '../lib/model';
import { asPage, asRecord, asText } from '../lib/read';
import { useListing } from '../lib/resource';
import { FormDialog, Dialog } from '../ui/dialog';
import { SelectField, TextField } from '../ui/field';
import { Moment } from '../ui/moment';
import { Badge, Card } from '../ui/page';
import { Secret } from '../ui/secret';
import { Empty } from '../ui/states';
import { ListTable } from '../ui/table';
import { toast } from '../ui/toast';
import { rfc3339 } from '../ui/usage-chart';
import { api, userPath } from './gateway';

type Open = { action: 'create' } | { action: 'rotate' | 'revoke'; key: ApiKey } | { action: 'reveal'; secret: string };

export function KeysCard({ userId }: { userId: string }) {
  const [open, setOpen] = useState<Open | null>(null);
  const keys = useListing<ApiKey>(`keys ${userId}`, async (cursor, signal) =>
    asPage(await api.call('GET', userPath(userId, '/keys'), { query: { cursor }, ...(signal ? { signal } : {}) }), readKey),
  );
  const close = () => setOpen((now) => (now?.action === 'reveal' ? now : null));
  const reveal = (body: unknown) => {
    keys.reload();
    setOpen({ action: 'reveal', secret: asText(asRecord(body)['key']) ?? '' });
  };
  return (
    <Card
      title={t('keys.title')}
      actions={
        <button type="button" class="button button-small" onClick={() => setOpen({ action: 'create' })}>
          <Plus aria-hidden="true" size={16} />
          {t('keys.new')}
        </button>
      }
    >
      <ListTable
        of={keys}
        caption={t('keys.title')}
        rowKey={(key) => key.keyId}
        empty={<Empty title={t('keys.none')}>{t('keys.none.hint')}</Empty>}
        columns={[
          { label: t('col.key'), names: true, cell: (key) => <code>…{key.last4}</code> },
          { label: t('col.name'), cell: (key) => key.name ?? <span class="muted">–</span> },
          { label: t('col.scope'), cell: (key) => (key.scope === 'service' ? <Badge tone="info">{t('scope.service')}</Badge> : t('scope.user')) },
          { label: t('col.created'), cell: (key) => <Moment at={key.createdAtMs} /> },
          { label: t('col.expires'), cell: (key) => <Moment at={key.expiresAtMs} none={t('keys.never')} /> },
          { label: t('col.status'), cell: (key) => <KeyStatus apiKey={key} /> },
          {
            label: t('col.actions'),
            cell: (key) => (isLive(key) ? <KeyActions apiKey={key} onPick={(action) => setOpen({ action, key })} /> : '–'),
          },
        ]}
      />
      {open?.action === 'create' && <CreateDialog userId={userId} onCreated={reveal} onClose={close} />}
      {open?.action === 'rotate' && <RotateDialog apiKey={open.key} onRotated={reveal} onClose={close} />}
      {open?.action === 'revoke' && <RevokeDialog apiKey={open.key} onRevoked={keys.reload} onClose={close} />}
      {open?.action === 'reveal' && (
        <Dialog title={t('keys.reveal')} onClose={() => setOpen(null)}>
          <div class="stack">
            <p>{t('keys.reveal.text')}</p>
            <Secret label={t('col.key')} value={open.secret} />
          </div>
        </Dialog>
      )}
    </Card>
  );
}

function isLive(key: ApiKey): boolean {
  return key.revokedAtMs === null;
}

function KeyStatus({ apiKey }: { apiKey: ApiKey }) {
  if (!isLive(apiKey)) return <Badge>{t('keys.revoked')}</Badge>;
  if (apiKey.expiresAtMs !== null && apiKey.expiresAtMs <= gatewayNow()) return <Badge tone="warn">{t('keys.expired')}</Badge>;
  return <Badge tone="good">{t('user.active')}</Badge>;
}

function KeyActions({ apiKey, onPick }: { apiKey: ApiKey; onPick(action: 'rotate' | 'revoke'): void }) {
  return (
    <span class="row row-tight">
      <button type="button" class="button button-small" aria-label={t('keys.rotate.one', { last4: apiKey.last4 })} onClick={() => onPick('rotate')}>
        {t('keys.rotate')}
      </button>
      <button type="button" class="button button-small button-danger-quiet" aria-label={t('keys.revoke.one', { last4: apiKey.last4 })} onClick={() => onPick('revoke')}>
        {t('keys.revoke')}
      </button>
    </span>
  );
}

function CreateDialog({ userId, onCreated, onClose }: { userId: string; onCreated(body: unknown): void; onClose(): void }) {
  const [name, setName] = useState('');
  const [scope, setScope] = useState<'user' | 'service'>('user');
  const [expires, setExpires] = useState('');
  const create = async () => {
    const body = {
      scope,
      ...(name.trim() === '' ? {} : { name: name.trim() }),
      ...(expires === '' ? {} : { expires_at: rfc3339(Date.parse(expires)) }),
    };
    onCreated(await api.call('POST', userPath(userId, '/keys'), { body }));
  };
  return (
    <FormDialog title={t('keys.new')} submitLabel={t('keys.create')} onSubmit={create} onClose={onClose}>
      <TextField label={t('field.name')} value={name} onChange={setName} />
      <SelectField
        label={t('col.scope')}
        hint={t('scope.hint')}
        value={scope}
        onChange={setScope}
        options={[
          { value: 'user', label: t('scope.user') },
          { value: 'service', label: t('scope.service') },
        ]}
      />
      <TextField label={t('col.expires')} hint={t('keys.expires.hint')} type="datetime-local" value={expires} onChange={setExpires} />
    </FormDialog>
  );
}

function RotateDialog({ apiKey, onRotated, onClose }: { apiKey: ApiKey; onRotated(body: unknown): void; onClose(): void }) {
  const rotate = async () => onRotated(await api.call('POST', `/admin/keys/${encodeURIComponent(apiKey.keyId)}/rotate`));
  return (
    <FormDialog title={t('keys.rotate.one', { last4: apiKey.last4 })} submitLabel={t('keys.rotate')} onSubmit={rotate} onClose={onClose}>
      <p>{t('keys.rotate.text')}</p>
    </FormDialog>
  );
}

function RevokeDialog({ apiKey, onRevoked, onClose }: { apiKey: ApiKey; onRevoked(): void; onClose(): void }) {
  const revoke = async () => {
    await api.call('DELETE', `/admin/keys/${encodeURIComponent(apiKey.keyId)}`);
    toast(t('keys.wasRevoked', { last4: apiKey.last4 }));
    onRevoked();
  };
  return (
    <FormDialog title={t('keys.revoke.one', { last4: apiKey.last4 })} submitLabel={t('keys.revoke')} danger onSubmit={revoke} onClose={onClose}>
      <p>{t('keys.revoke.text')}</p>
    </FormDialog>
  );
}
