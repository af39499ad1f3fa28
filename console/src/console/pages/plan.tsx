import { Copy, Trash2 } from 'lucide-preact';
import { useMemo, useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { t, tn } from '../../i18n';
import { number, policyName } from '../../lib/format';
import { userPage } from '../../lib/links';
import { readQuota, type Policy, type User } from '../../lib/model';
import { newPlan, readPlan, type Plan } from '../../lib/plan';
import { checkPlan } from '../../lib/plan-check';
import { diffPlans, loweredPolicies, patchOf, type LoweredPolicy } from '../../lib/plan-diff';
import { useResource } from '../../lib/resource';
import { Changes } from '../../ui/changes';
import { FormDialog } from '../../ui/dialog';
import { Card, Page } from '../../ui/page';
import { Empty, Loaded } from '../../ui/states';
import { toast } from '../../ui/toast';
import { api, loadUsersOf, userPath } from '../gateway';
import { PlanForm } from '../plan-form';

// A plan being copied, on its way from one plan's page to the page of the new one.
let template: Plan | null = null;

export function PlanPage({ id }: { id: string | null }) {
  if (id === null) return <NewPlan />;
  return <SavedPlan id={id} />;
}

function planPath(id: string): string {
  return `/admin/plans/${encodeURIComponent(id)}`;
}

function NewPlan() {
  const [plan, setPlan] = useState<Plan>(() => {
    const start = template ?? newPlan();
    template = null;
    return start;
  });
  const [saving, setSaving] = useState(false);
  const [checked, setChecked] = useState(false);
  const [, navigate] = useLocation();
  const problems = checkPlan(plan);
  const bad = Object.keys(problems).length;
  const create = async () => {
    await api.call('POST', '/admin/plans', { body: plan });
    toast(t('plan.created', { plan: plan.name }));
    navigate('/plans');
  };
  return (
    <Page title={t('plans.new')} lead={t('plan.new.lead')}>
      <PlanForm plan={plan} isNew problems={checked ? problems : {}} onChange={setPlan} />
      <SaveBar
        label={t('plan.create')}
        note={checked && bad > 0 ? tn('plan.problems', bad) : ''}
        onSave={() => {
          setChecked(true);
          if (bad === 0) setSaving(true);
        }}
      />
      {saving && (
        <FormDialog title={t('plan.create.title', { plan: plan.name })} submitLabel={t('plan.create')} onSubmit={create} onClose={() => setSaving(false)}>
          <p>{t('plan.create.text')}</p>
        </FormDialog>
      )}
    </Page>
  );
}

function SavedPlan({ id }: { id: string }) {
  const plan = useResource(`plan ${id}`, async (signal) => readPlan(await api.call('GET', planPath(id), { signal })));
  const [deleting, setDeleting] = useState(false);
  const [, navigate] = useLocation();
  const remove = async () => {
    await api.call('DELETE', planPath(id));
    toast(t('plan.deleted', { plan: id }));
    navigate('/plans');
  };
  const copy = () => {
    if (plan.data === null) return;
    template = { ...plan.data, plan_id: `${plan.data.plan_id}-copy`, name: t('plan.copyOf', { plan: plan.data.name }) };
    navigate('/new-plan');
  };
  return (
    <Page
      title={plan.data?.name ?? id}
      aside={<code class="muted">{id}</code>}
      actions={
        <>
          <button type="button" class="button" onClick={copy} disabled={plan.data === null}>
            <Copy aria-hidden="true" size={16} />
            {t('plan.copy')}
          </button>
          <button type="button" class="button button-danger-quiet" onClick={() => setDeleting(true)}>
            <Trash2 aria-hidden="true" size={16} />
            {t('plan.delete')}
          </button>
        </>
      }
    >
      <Loaded of={plan}>{(data) => <PlanEditor key={JSON.stringify(data)} saved={data} onSaved={plan.replace} />}</Loaded>
      {deleting && (
        <FormDialog title={t('plan.delete.title', { plan: id })} submitLabel={t('plan.delete')} danger onSubmit={remove} onClose={() => setDeleting(false)}>
          <p>{t('plan.delete.text')}</p>
        </FormDialog>
      )}
    </Page>
  );
}

function PlanEditor({ saved, onSaved }: { saved: Plan; onSaved(plan: Plan): void }) {
  const [draft, setDraft] = useState(saved);
  const [reviewing, setReviewing] = useState(false);
  const problems = useMemo(() => checkPlan(draft), [draft]);
  const bad = Object.keys(problems).length;
  const changed = diffPlans(saved, draft).length;
  const note = bad > 0 ? tn('plan.problems', bad) : changed > 0 ? tn('plan.changes', changed) : t('plan.unchanged');
  return (
    <>
      <UsersCard planId={saved.plan_id} />
      <PlanForm plan={draft} isNew={false} problems={problems} onChange={setDraft} />
      <SaveBar
        label={t('plan.review')}
        note={note}
        disabled={bad > 0 || changed === 0}
        onSave={() => setReviewing(true)}
        {...(changed > 0 ? { onDiscard: () => setDraft(saved) } : {})}
      />
      {reviewing && <ReviewDialog saved={saved} draft={draft} onSaved={onSaved} onClose={() => setReviewing(false)} />}
    </>
  );
}

interface SaveBarProps {
  label: string;
  note: string;
  disabled?: boolean;
  onSave(): void;
  onDiscard?: () => void;
}

function SaveBar({ label, note, disabled, onSave, onDiscard }: SaveBarProps) {
  return (
    <div class="save-bar">
      <p class="small" role="status">
        {note}
      </p>
      <div class="row">
        {onDiscard && (
          <button type="button" class="button" onClick={onDiscard}>
            {t('plan.discard')}
          </button>
        )}
        <button type="button" class="button button-main" disabled={disabled} onClick={onSave}>
          {label}
        </button>
      </div>
    </div>
  );
}

function UsersCard({ planId }: { planId: string }) {
  const users = useResource(`users of ${planId}`, (signal) => loadUsersOf(planId, signal));
  return (
    <Card title={t('plan.users')}>
      <Loaded of={users}>
        {({ items, nextCursor }) =>
          items.length === 0 ? (
            <Empty title={t('plan.users.none')} />
          ) : (
            <p>
              {nextCursor === null ? tn('plan.users.count', items.length) : t('plan.users.many', { n: number(items.length) })}
            </p>
          )
        }
      </Loaded>
    </Card>
  );
}

interface ReviewProps {
  saved: Plan;
  draft: Plan;
  onSaved(plan: Plan): void;
  onClose(): void;
}

/** The last look before saving: what changes, whom it touches, and who is over the new limits at once. */
function ReviewDialog({ saved, draft, onSaved, onClose }: ReviewProps) {
  const patch = patchOf(saved, draft);
  const save = async () => {
    const plan = readPlan(await api.call('PATCH', planPath(saved.plan_id), { body: patch }));
    // Before anything says that it was saved: what is changed from then on stays.
    onSaved(plan);
    toast(t('plan.saved', { plan: plan.name }));
  };
  return (
    <FormDialog wide title={t('plan.review.title', { plan: saved.name })} submitLabel={t('plan.save')} onSubmit={save} onClose={onClose}>
      <Changes caption={t('plan.review.changes')} changes={diffPlans(saved, draft)} />
      <Touched saved={saved} draft={draft} fields={Object.keys(patch)} />
      <p class="small muted">{t('plan.review.note')}</p>
    </FormDialog>
  );
}

const SAMPLE = 20;

function Touched({ saved, draft, fields }: { saved: Plan; draft: Plan; fields: string[] }) {
  const users = useResource(`touched ${saved.plan_id}`, (signal) => loadUsersOf(saved.plan_id, signal));
  const rules = fields.filter((field) => field !== 'name');
  const lowered = loweredPolicies(saved, draft);
  return (
    <section class="stack-s">
      <h3>{t('plan.touched')}</h3>
      <Loaded of={users}>
        {({ items, nextCursor }) => {
          const shielded = items.filter((user) => isShielded(user, rules));
          const touched = items.filter((user) => !isShielded(user, rules));
          return (
            <>
              <p>
                {nextCursor === null ? tn('plan.touched.count', touched.length) : t('plan.touched.many', { n: number(touched.length) })}
                {shielded.length > 0 && ` ${tn('plan.touched.shielded', shielded.length)}`}
              </p>
              <UserLinks users={touched.slice(0, SAMPLE)} more={touched.length - SAMPLE} />
              {lowered.length > 0 && touched.length > 0 && <OverAtOnce users={touched.slice(0, SAMPLE)} lowered={lowered} />}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

// An override replaces the whole rule, so a user who has one for every changed rule notices nothing.
function isShielded(user: User, rules: string[]): boolean {
  return rules.length > 0 && rules.every((rule) => rule in user.overrides);
}

function UserLinks({ users, more }: { users: User[]; more: number }) {
  if (users.length === 0) return null;
  return (
    <ul class="chips">
      {users.map((user) => (
        <li key={user.userId}>
          <Link class="chip" href={userPage(user.userId)}>
            {user.userId}
          </Link>
        </li>
      ))}
      {more > 0 && <li class="small muted">{t('plan.touched.more', { n: number(more) })}</li>}
    </ul>
  );
}

// Whoever has nothing left already is refused today as well: the change is no news to them.
function isOver(user: User, policy: Policy, lowered: LoweredPolicy[]): boolean {
  const change = lowered.find((one) => one.policy === policy.name && !(one.rule in user.overrides));
  return change !== undefined && policy.used >= change.limit && policy.remaining > 0;
}

/** Asks what a sample of the users has used: who is above a lowered limit is refused from the next call on. */
function OverAtOnce({ users, lowered }: { users: User[]; lowered: LoweredPolicy[] }) {
  const over = useResource(`over ${JSON.stringify([users.map((user) => user.userId), lowered])}`, async (signal) => {
    const quotas = await Promise.all(
      users.map(async (user) => readQuota(await api.call('GET', userPath(user.userId, '/quota'), { signal }))),
    );
    return quotas.flatMap((quota, index) => {
      const user = users[index];
      const policy = user && quota.policies.find((one) => isOver(user, one, lowered));
      return user && policy ? [{ user, policy }] : [];
    });
  });
  return (
    <Loaded of={over}>
      {(found) =>
        found.length === 0 ? (
          <p class="small muted">{tn('plan.over.none', users.length)}</p>
        ) : (
          <div class="notice notice-warn">
            <div>
              <p>{tn('plan.over', found.length)}</p>
              <ul class="small">
                {found.map(({ user, policy }) => (
                  <li key={user.userId}>
                    {user.userId}: {policyName(policy.name)} {number(policy.used)}
                  </li>
                ))}
              </ul>
            </div>
          </div>
        )
      }
    </Loaded>
  );
}
