import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { Plus, Search } from 'lucide-preact';
import { t } from '../../i18n';
import { userPage } from '../../lib/links';
import { readUser, type User } from '../../lib/model';
import { asPage } from '../../lib/read';
import { useListing, useResource } from '../../lib/resource';
import { FormDialog } from '../../ui/dialog';
import { SelectField, TextField } from '../../ui/field';
import { Moment } from '../../ui/moment';
import { Badge, Card, Page } from '../../ui/page';
import { Empty } from '../../ui/states';
import { ListTable } from '../../ui/table';
import { toast } from '../../ui/toast';
import { api, loadPlans } from '../gateway';

// Outlives the page, so that coming back from a user finds the same list.
const search = signal('');
const TYPING_PAUSE_MS = 300;

export function UsersPage() {
  const query = useSettled(search.value.trim(), TYPING_PAUSE_MS);
  const [creating, setCreating] = useState(false);
  const users = useListing<User>(`users ${query}`, async (cursor, abort) =>
    asPage(await api.call('GET', '/admin/users', { query: { q: query, cursor }, ...(abort ? { signal: abort } : {}) }), readUser),
  );
  return (
    <Page
      title={t('nav.users')}
      lead={t('users.lead')}
      actions={
        <button type="button" class="button button-main" onClick={() => setCreating(true)}>
          <Plus aria-hidden="true" size={16} />
          {t('users.new')}
        </button>
      }
    >
      <Card title={t('users.list')}>
        <form class="search" role="search" onSubmit={(event) => event.preventDefault()}>
          <Search aria-hidden="true" size={16} />
          <input
            type="search"
            aria-label={t('users.search')}
            placeholder={t('users.search.placeholder')}
            value={search.value}
            onInput={(event) => (search.value = event.currentTarget.value)}
          />
        </form>
        <ListTable
          of={users}
          caption={t('users.list')}
          rowKey={(user) => user.userId}
          empty={
            query === '' ? (
              <Empty title={t('users.none')}>{t('users.none.hint')}</Empty>
            ) : (
              <Empty title={t('users.notFound', { query })}>{t('users.notFound.hint')}</Empty>
            )
          }
          columns={[
            { label: t('col.user'), names: true, cell: (user) => <Link href={userPage(user.userId)}>{user.userId}</Link> },
            { label: t('col.email'), cell: (user) => user.email ?? <span class="muted">–</span> },
            { label: t('col.plan'), cell: (user) => user.planId },
            { label: t('col.status'), cell: (user) => <UserStatus user={user} /> },
            { label: t('col.created'), cell: (user) => <Moment at={user.createdAtMs} /> },
          ]}
        />
      </Card>
      {creating && <NewUserDialog onClose={() => setCreating(false)} />}
    </Page>
  );
}

export function UserStatus({ user }: { user: User }) {
  return (
    <span class="row row-tight">
      {user.blocked ? <Badge tone="bad">{t('user.blocked')}</Badge> : <Badge tone="good">{t('user.active')}</Badge>}
      {Object.keys(user.overrides).length > 0 && <Badge tone="info">{t('user.overridden')}</Badge>}
    </span>
  );
}

function NewUserDialog({ onClose }: { onClose(): void }) {
  const [userId, setUserId] = useState('');
  const [email, setEmail] = useState('');
  const [planId, setPlanId] = useState('');
  const plans = useResource('plans', loadPlans);
  const [, navigate] = useLocation();
  const create = async () => {
    const body = {
      user_id: userId.trim(),
      ...(planId === '' ? {} : { plan_id: planId }),
      ...(email.trim() === '' ? {} : { email: email.trim() }),
    };
    await api.call('POST', '/admin/users', { body });
    toast(t('users.created', { user: body.user_id }));
    navigate(userPage(body.user_id));
  };
  const options = [
    { value: '', label: t('users.defaultPlan') },
    ...(plans.data ?? []).map((plan) => ({ value: plan.plan_id, label: plan.name })),
  ];
  return (
    <FormDialog title={t('users.new')} submitLabel={t('users.create')} onSubmit={create} onClose={onClose}>
      <TextField label={t('field.user_id')} hint={t('users.id.hint')} value={userId} onChange={setUserId} required />
      <SelectField label={t('field.plan_id')} value={planId} onChange={setPlanId} options={options} />
      <TextField label={t('field.email')} type="email" value={email} onChange={setEmail} />
    </FormDialog>
  );
}

/** The value once it has stopped changing. */
function useSettled(value: string, pauseMs: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), pauseMs);
    return () => clearTimeout(timer);
  }, [value, pauseMs]);
  return settled;
}
