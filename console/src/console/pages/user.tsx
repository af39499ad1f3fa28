import { useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { t, tn } from '../../i18n';
import { noteGatewayTime } from '../../lib/clock';
import { planPage } from '../../lib/links';
import { readQuota, readUsageDay, readUser, type Quota, type User } from '../../lib/model';
import { readPlan, RULE_NAMES } from '../../lib/plan';
import { asPage } from '../../lib/read';
import { useResource, type Resource } from '../../lib/resource';
import { Changes } from '../../ui/changes';
import { Meters } from '../../ui/meter';
import { Moment } from '../../ui/moment';
import { Badge, Card, Page } from '../../ui/page';
import { Empty, Loaded } from '../../ui/states';
import { toast } from '../../ui/toast';
import { UsageCharts, USAGE_DAYS, usageRange } from '../../ui/usage-chart';
import { api, userPath } from '../gateway';
import { KeysCard } from '../user-keys';
import { OverrideDialog } from '../user-override';
import { BlockDialog, DeleteDialog, GrantDialog, PlanDialog, ProfileDialog, ResetDialog } from '../user-actions';
import { UserStatus } from './users';

const POLL_MS = 5000;

type Action = 'plan' | 'override' | 'block' | 'reset' | 'grant' | 'profile' | 'delete';

export function UserPage({ id }: { id: string }) {
  const user = useResource(`user ${id}`, async (signal) => readUser(await api.call('GET', userPath(id), { signal })));
  const quota = useResource(
    `quota ${id}`,
    async (signal) => {
      const found = readQuota(await api.call('GET', userPath(id, '/quota'), { signal }));
      noteGatewayTime(found.asOfMs);
      return found;
    },
    POLL_MS,
  );
  const [action, setAction] = useState<Action | null>(null);
  const done = (said: string) => {
    toast(said);
    user.reload();
    quota.reload();
  };
  return (
    <Page
      title={id}
      aside={user.data && <UserStatus user={user.data} />}
      actions={user.data && <Actions user={user.data} onPick={setAction} />}
    >
      <Loaded of={user}>{(data) => <Profile user={data} onPick={setAction} />}</Loaded>
      <MetersCard quota={quota} />
      <UsageCard id={id} />
      <KeysCard userId={id} />
      {user.data && <OverridesCard user={user.data} onEdit={() => setAction('override')} />}
      {user.data && action && (
        <ActionDialog action={action} user={user.data} quota={quota.data} onDone={done} onClose={() => setAction(null)} />
      )}
    </Page>
  );
}

function Actions({ user, onPick }: { user: User; onPick(action: Action): void }) {
  return (
    <>
      <button type="button" class="button" onClick={() => onPick('plan')}>
        {t('user.switchPlan')}
      </button>
      <button type="button" class="button" onClick={() => onPick('reset')}>
        {t('user.reset')}
      </button>
      <button type="button" class="button" onClick={() => onPick('grant')}>
        {t('user.grant')}
      </button>
      <button type="button" class="button" onClick={() => onPick('override')}>
        {t('user.override')}
      </button>
      <button type="button" class={user.blocked ? 'button' : 'button button-danger-quiet'} onClick={() => onPick('block')}>
        {user.blocked ? t('user.unblock') : t('user.block')}
      </button>
    </>
  );
}

function Profile({ user, onPick }: { user: User; onPick(action: Action): void }) {
  return (
    <Card
      title={t('user.profile')}
      actions={
        <>
          <button type="button" class="button button-small" onClick={() => onPick('profile')}>
            {t('user.editProfile')}
          </button>
          <button type="button" class="button button-small button-danger-quiet" onClick={() => onPick('delete')}>
            {t('user.delete')}
          </button>
        </>
      }
    >
      <dl class="facts">
        <div>
          <dt>{t('col.plan')}</dt>
          <dd>
            <Link href={planPage(user.planId)}>{user.planId}</Link>
          </dd>
        </div>
        <div>
          <dt>{t('col.email')}</dt>
          <dd>{user.email ?? '–'}</dd>
        </div>
        <div>
          <dt>{t('field.webhook_url')}</dt>
          <dd>{user.webhookUrl ?? '–'}</dd>
        </div>
        <div>
          <dt>{t('col.created')}</dt>
          <dd>
            <Moment at={user.createdAtMs} />
          </dd>
        </div>
      </dl>
    </Card>
  );
}

function MetersCard({ quota }: { quota: Resource<Quota> }) {
  return (
    <Card title={t('user.meters')} hint={t('user.meters.hint')}>
      <Loaded of={quota}>{(data) => <Meters policies={data.policies} onReset={quota.reload} />}</Loaded>
    </Card>
  );
}

function UsageCard({ id }: { id: string }) {
  const usage = useResource(`usage ${id}`, async (signal) =>
    asPage(await api.call('GET', userPath(id, '/usage'), { query: usageRange(), signal }), readUsageDay),
  );
  return (
    <Card title={tn('usage.title', USAGE_DAYS)}>
      <Loaded of={usage}>{({ items }) => <UsageCharts days={items} />}</Loaded>
    </Card>
  );
}

function OverridesCard({ user, onEdit }: { user: User; onEdit(): void }) {
  const set = Object.entries(user.overrides);
  return (
    <Card
      title={t('user.overrides')}
      hint={t('user.overrides.hint')}
      actions={
        <button type="button" class="button button-small" onClick={onEdit}>
          {t('user.override')}
        </button>
      }
    >
      {set.length === 0 ? (
        <Empty title={t('user.overrides.none')} />
      ) : (
        <OverrideList user={user} />
      )}
    </Card>
  );
}

function OverrideList({ user }: { user: User }) {
  const plan = useResource(`plan ${user.planId}`, async (signal) => {
    const body = await api.call('GET', `/admin/plans/${encodeURIComponent(user.planId)}`, { signal });
    return readPlan(body);
  });
  return (
    <Loaded of={plan}>
      {(data) => (
        <>
          <p class="small muted">
            {t('user.overrides.compare')} <Badge>{user.planId}</Badge>
          </p>
          <Changes
            caption={t('user.overrides')}
            changes={RULE_NAMES.filter((name) => name in user.overrides).map((name) => ({
              path: name,
              before: data[name],
              after: user.overrides[name],
            }))}
          />
        </>
      )}
    </Loaded>
  );
}

interface ActionDialogProps {
  action: Action;
  user: User;
  quota: Quota | null;
  onDone(said: string): void;
  onClose(): void;
}

function ActionDialog({ action, user, quota, onDone, onClose }: ActionDialogProps) {
  const [, navigate] = useLocation();
  const shared = { user, onDone, onClose };
  switch (action) {
    case 'plan':
      return <PlanDialog {...shared} />;
    case 'override':
      return <OverrideDialog {...shared} />;
    case 'block':
      return <BlockDialog {...shared} />;
    case 'reset':
      return <ResetDialog {...shared} policies={quota?.policies ?? []} />;
    case 'grant':
      return <GrantDialog {...shared} policies={quota?.policies ?? []} />;
    case 'profile':
      return <ProfileDialog {...shared} />;
    case 'delete':
      return <DeleteDialog {...shared} onDone={(said) => { toast(said); navigate('/users'); }} />;
  }
}
