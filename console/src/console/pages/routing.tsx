import { Plus } from 'lucide-preact';
import { useState } from 'preact/hooks';
import { t } from '../../i18n';
import { number } from '../../lib/format';
import { readModel, readRoute, UPSTREAMS, type ModelRow, type Route } from '../../lib/model';
import { asPage } from '../../lib/read';
import { useListing, type Listing } from '../../lib/resource';
import { FormDialog } from '../../ui/dialog';
import { LimitField, NumberField, SelectField, TextField } from '../../ui/field';
import { Badge, Card, Page } from '../../ui/page';
import { Empty } from '../../ui/states';
import { ListTable } from '../../ui/table';
import { toast } from '../../ui/toast';
import { api } from '../gateway';

/** Where calls go: models to providers, protected paths to the operator's own services. */
export function RoutingPage() {
  return (
    <Page title={t('nav.routing')} lead={t('routing.lead')}>
      <ModelsCard />
      <RoutesCard />
    </Page>
  );
}

type Open<T> = { action: 'edit'; row: T | null } | { action: 'delete'; row: T };

function ModelsCard() {
  const [open, setOpen] = useState<Open<ModelRow> | null>(null);
  const models = useListing<ModelRow>('models', async (cursor, signal) =>
    asPage(await api.call('GET', '/admin/models', { query: { cursor }, ...(signal ? { signal } : {}) }), readModel),
  );
  const done = finish(models, t('routing.saved'));
  return (
    <Card title={t('models.title')} hint={t('models.hint')} actions={<AddButton label={t('models.new')} onClick={() => setOpen({ action: 'edit', row: null })} />}>
      <ListTable
        of={models}
        caption={t('models.title')}
        rowKey={(row) => row.model}
        empty={<Empty title={t('models.none')}>{t('models.none.hint')}</Empty>}
        columns={[
          { label: t('col.model'), names: true, cell: (row) => <code>{row.model}</code> },
          { label: t('field.upstream'), cell: (row) => <Badge>{row.upstream}</Badge> },
          { label: t('field.upstream_model'), cell: (row) => row.upstreamModel ?? <span class="muted">–</span> },
          { label: t('field.base_url'), cell: (row) => row.baseUrl ?? <span class="muted">–</span> },
          { label: t('field.secret_name'), cell: (row) => (row.secretName ? <code>{row.secretName}</code> : <span class="muted">–</span>) },
          { label: t('field.aliases'), cell: (row) => row.aliases.join(', ') || <span class="muted">–</span> },
          { label: t('col.actions'), cell: (row) => <RowActions name={row.model} onPick={(action) => setOpen({ action, row })} /> },
        ]}
      />
      {open?.action === 'edit' && <ModelDialog row={open.row} onDone={done} onClose={() => setOpen(null)} />}
      {open?.action === 'delete' && (
        <DeleteDialog name={open.row.model} path={modelPath(open.row.model)} onDone={done} onClose={() => setOpen(null)} />
      )}
    </Card>
  );
}

function RoutesCard() {
  const [open, setOpen] = useState<Open<Route> | null>(null);
  const routes = useListing<Route>('routes', async (cursor, signal) =>
    asPage(await api.call('GET', '/admin/routes', { query: { cursor }, ...(signal ? { signal } : {}) }), readRoute),
  );
  const done = finish(routes, t('routing.saved'));
  return (
    <Card title={t('routes.title')} hint={t('routes.hint')} actions={<AddButton label={t('routes.new')} onClick={() => setOpen({ action: 'edit', row: null })} />}>
      <ListTable
        of={routes}
        caption={t('routes.title')}
        rowKey={(row) => row.routeId}
        empty={<Empty title={t('routes.none')}>{t('routes.none.hint')}</Empty>}
        columns={[
          { label: t('field.path_prefix'), names: true, cell: (row) => <code>{row.pathPrefix}</code> },
          { label: t('field.methods'), cell: (row) => (row.methods === null ? t('routes.anyMethod') : row.methods.join(', ') || t('value.none')) },
          { label: t('field.upstream_url'), cell: (row) => <span class="breakable">{row.upstreamUrl}</span> },
          { label: t('col.endpoint'), cell: (row) => row.endpoint ?? <span class="muted">–</span> },
          { label: t('field.cost'), number: true, cell: (row) => number(row.cost) },
          { label: t('field.timeout_ms'), number: true, cell: (row) => (row.timeoutMs === null ? '–' : number(row.timeoutMs)) },
          { label: t('col.actions'), cell: (row) => <RowActions name={row.pathPrefix} onPick={(action) => setOpen({ action, row })} /> },
        ]}
      />
      {open?.action === 'edit' && <RouteDialog row={open.row} onDone={done} onClose={() => setOpen(null)} />}
      {open?.action === 'delete' && (
        <DeleteDialog name={open.row.pathPrefix} path={routePath(open.row.routeId)} onDone={done} onClose={() => setOpen(null)} />
      )}
    </Card>
  );
}

function finish<T>(list: Listing<T>, said: string): () => void {
  return () => {
    toast(said);
    list.reload();
  };
}

function modelPath(model: string): string {
  return `/admin/models/${encodeURIComponent(model)}`;
}

function routePath(routeId: string): string {
  return `/admin/routes/${encodeURIComponent(routeId)}`;
}

function AddButton({ label, onClick }: { label: string; onClick(): void }) {
  return (
    <button type="button" class="button button-small" onClick={onClick}>
      <Plus aria-hidden="true" size={16} />
      {label}
    </button>
  );
}

function RowActions({ name, onPick }: { name: string; onPick(action: 'edit' | 'delete'): void }) {
  return (
    <span class="row row-tight">
      <button type="button" class="button button-small" aria-label={t('action.edit.one', { name })} onClick={() => onPick('edit')}>
        {t('action.edit')}
      </button>
      <button type="button" class="button button-small button-danger-quiet" aria-label={t('action.delete.one', { name })} onClick={() => onPick('delete')}>
        {t('action.delete')}
      </button>
    </span>
  );
}

interface DialogEnd {
  onDone(): void;
  onClose(): void;
}

function DeleteDialog({ name, path, onDone, onClose }: { name: string; path: string } & DialogEnd) {
  const remove = async () => {
    await api.call('DELETE', path);
    onDone();
  };
  return (
    <FormDialog title={t('action.delete.one', { name })} submitLabel={t('action.delete')} danger onSubmit={remove} onClose={onClose}>
      <p>{t('routing.delete.text')}</p>
    </FormDialog>
  );
}

function ModelDialog({ row, onDone, onClose }: { row: ModelRow | null } & DialogEnd) {
  const [model, setModel] = useState(row?.model ?? '');
  const [upstream, setUpstream] = useState<ModelRow['upstream']>(row?.upstream ?? 'openai');
  const [baseUrl, setBaseUrl] = useState(row?.baseUrl ?? '');
  const [secretName, setSecretName] = useState(row?.secretName ?? '');
  const [upstreamModel, setUpstreamModel] = useState(row?.upstreamModel ?? '');
  const [aliases, setAliases] = useState(row?.aliases.join(', ') ?? '');
  const save = async () => {
    const body = {
      upstream,
      ...filled('base_url', baseUrl),
      ...filled('secret_name', secretName),
      ...filled('upstream_model', upstreamModel),
      aliases: words(aliases),
    };
    await api.call('PUT', modelPath(model.trim()), { body });
    onDone();
  };
  const remote = upstream === 'openai' || upstream === 'anthropic';
  return (
    <FormDialog title={row ? t('action.edit.one', { name: row.model }) : t('models.new')} submitLabel={t('action.save')} onSubmit={save} onClose={onClose}>
      {!row && <TextField label={t('col.model')} hint={t('models.name.hint')} value={model} onChange={setModel} required />}
      <SelectField label={t('field.upstream')} value={upstream} onChange={setUpstream} options={UPSTREAMS.map((value) => ({ value, label: t(`upstream.${value}`) }))} />
      {remote && <TextField label={t('field.base_url')} type="url" value={baseUrl} onChange={setBaseUrl} />}
      {remote && <TextField label={t('field.secret_name')} hint={t('field.secret_name.hint')} value={secretName} onChange={setSecretName} />}
      <TextField label={t('field.upstream_model')} hint={t('field.upstream_model.hint')} value={upstreamModel} onChange={setUpstreamModel} />
      <TextField label={t('field.aliases')} hint={t('field.list.hint')} value={aliases} onChange={setAliases} />
    </FormDialog>
  );
}

function RouteDialog({ row, onDone, onClose }: { row: Route | null } & DialogEnd) {
  const [pathPrefix, setPathPrefix] = useState(row?.pathPrefix ?? '/');
  const [methods, setMethods] = useState(row?.methods?.join(', ') ?? '');
  const [upstreamUrl, setUpstreamUrl] = useState(row?.upstreamUrl ?? 'https://');
  const [endpoint, setEndpoint] = useState(row?.endpoint ?? '');
  const [cost, setCost] = useState(row?.cost ?? 1);
  const [timeoutMs, setTimeoutMs] = useState<number | null>(row?.timeoutMs ?? null);
  const save = async () => {
    const body = {
      path_prefix: pathPrefix.trim(),
      methods: words(methods.toUpperCase()).length === 0 ? null : words(methods.toUpperCase()),
      upstream_url: upstreamUrl.trim(),
      endpoint: endpoint.trim() === '' ? null : endpoint.trim(),
      cost,
      ...(timeoutMs === null && !row ? {} : { timeout_ms: timeoutMs }),
    };
    await (row ? api.call('PATCH', routePath(row.routeId), { body }) : api.call('POST', '/admin/routes', { body }));
    onDone();
  };
  return (
    <FormDialog
      title={row ? t('action.edit.one', { name: row.pathPrefix }) : t('routes.new')}
      submitLabel={t('action.save')}
      disabled={Number.isNaN(cost) || Number.isNaN(timeoutMs)}
      onSubmit={save}
      onClose={onClose}
    >
      <TextField label={t('field.path_prefix')} hint={t('field.path_prefix.hint')} value={pathPrefix} onChange={setPathPrefix} required />
      <TextField label={t('field.upstream_url')} type="url" value={upstreamUrl} onChange={setUpstreamUrl} required />
      <TextField label={t('field.methods')} hint={t('field.methods.hint')} value={methods} onChange={setMethods} />
      <TextField label={t('col.endpoint')} hint={t('field.endpoint.hint')} value={endpoint} onChange={setEndpoint} />
      <NumberField label={t('field.cost')} hint={t('field.cost.hint')} value={cost} onChange={setCost} />
      <LimitField label={t('field.timeout_ms')} nullLabel={t('field.timeout_ms.default')} value={timeoutMs} onChange={setTimeoutMs} />
    </FormDialog>
  );
}

function words(text: string): string[] {
  return text.split(/[,，\s]+/).filter((word) => word !== '');
}

function filled(name: string, text: string): Record<string, string> {
  return text.trim() === '' ? {} : { [name]: text.trim() };
}
