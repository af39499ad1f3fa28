import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { policyName } from '../lib/format';
import type { Policy, User } from '../lib/model';
import { useResource } from '../lib/resource';
import { FormDialog } from '../ui/dialog';
import { CheckField, NumberField, SelectField, TextField } from '../ui/field';
import { Loaded } from '../ui/states';
import { rfc3339 } from '../ui/usage-chart';
import { api, loadPlans, userPath } from './gateway';

export interface UserDialogProps {
  user: User;
  /** Called with what to say once the gateway has agreed. */
  onDone(said: string): void;
  onClose(): void;
}

function patchUser(user: User, body: Record<string, unknown>): Promise<unknown> {
  return api.call('PATCH', userPath(user.userId), { body });
}

export function PlanDialog({ user, onDone, onClose }: UserDialogProps) {
  const plans = useResource('plans', loadPlans);
  const [planId, setPlanId] = useState(user.planId);
  const save = async () => {
    await patchUser(user, { plan_id: planId });
    onDone(t('user.switched', { user: user.userId, plan: planId }));
  };
  return (
    <FormDialog title={t('user.switchPlan')} submitLabel={t('user.switchPlan')} disabled={planId === user.planId} onSubmit={save} onClose={onClose}>
      <p>{t('user.switchPlan.text')}</p>
      <Loaded of={plans}>
        {(data) => (
          <SelectField
            label={t('field.plan_id')}
            value={planId}
            onChange={setPlanId}
            options={data.map((plan) => ({ value: plan.plan_id, label: plan.plan_id === user.planId ? t('user.currentPlan', { plan: plan.name }) : plan.name }))}
          />
        )}
      </Loaded>
    </FormDialog>
  );
}

export function BlockDialog({ user, onDone, onClose }: UserDialogProps) {
  const save = async () => {
    await patchUser(user, { status: user.blocked ? 'active' : 'blocked' });
    onDone(t(user.blocked ? 'user.unblocked' : 'user.wasBlocked', { user: user.userId }));
  };
  return (
    <FormDialog
      title={t(user.blocked ? 'user.unblock.title' : 'user.block.title', { user: user.userId })}
      submitLabel={user.blocked ? t('user.unblock') : t('user.block')}
      danger={!user.blocked}
      onSubmit={save}
      onClose={onClose}
    >
      <p>{user.blocked ? t('user.unblock.text') : t('user.block.text')}</p>
    </FormDialog>
  );
}

interface PolicyDialogProps extends UserDialogProps {
  policies: Policy[];
}

export function ResetDialog({ user, policies, onDone, onClose }: PolicyDialogProps) {
  const [picked, setPicked] = useState<string[]>([]);
  const resettable = policies.filter((policy) => policy.kind !== 'concurrency');
  const toggle = (name: string, on: boolean) => setPicked(on ? [...picked, name] : picked.filter((one) => one !== name));
  const reset = async () => {
    await api.call('POST', userPath(user.userId, '/reset'), { body: picked.length === 0 ? {} : { policies: picked } });
    onDone(t('user.wasReset', { user: user.userId }));
  };
  return (
    <FormDialog
      title={t('user.reset.title', { user: user.userId })}
      submitLabel={picked.length === 0 ? t('user.reset.all') : t('user.reset')}
      onSubmit={reset}
      onClose={onClose}
    >
      <p>{t('user.reset.text')}</p>
      <fieldset class="field-group">
        <legend>{t('user.reset.which')}</legend>
        {resettable.map((policy) => (
          <CheckField
            key={policy.name}
            label={policyName(policy.name)}
            checked={picked.includes(policy.name)}
            onChange={(on) => toggle(policy.name, on)}
          />
        ))}
      </fieldset>
    </FormDialog>
  );
}

export function GrantDialog({ user, policies, onDone, onClose }: PolicyDialogProps) {
  // Only quotas are topped up; a short limit is back before anyone could ask.
  const quotas = ['daily', 'monthly-tokens'].filter((name) => policies.some((policy) => policy.name === name));
  const options = quotas.length > 0 ? quotas : ['daily', 'monthly-tokens'];
  const [policy, setPolicy] = useState(options[0] ?? 'daily');
  const [amount, setAmount] = useState(100);
  const [expires, setExpires] = useState('');
  const grant = async () => {
    const body = { policy, amount, ...(expires === '' ? {} : { expires_at: rfc3339(Date.parse(expires)) }) };
    await api.call('POST', userPath(user.userId, '/grant'), { body });
    onDone(t('user.granted', { user: user.userId }));
  };
  return (
    <FormDialog
      title={t('user.grant.title', { user: user.userId })}
      submitLabel={t('user.grant')}
      disabled={!Number.isInteger(amount) || amount < 1}
      onSubmit={grant}
      onClose={onClose}
    >
      <p>{t('user.grant.text')}</p>
      <SelectField
        label={t('user.grant.policy')}
        value={policy}
        onChange={setPolicy}
        options={options.map((name) => ({ value: name, label: policyName(name) }))}
      />
      <NumberField label={t('user.grant.amount')} min={1} value={amount} onChange={setAmount} />
      <TextField label={t('user.grant.expires')} hint={t('user.grant.expires.hint')} type="datetime-local" value={expires} onChange={setExpires} />
    </FormDialog>
  );
}

export function ProfileDialog({ user, onDone, onClose }: UserDialogProps) {
  const [email, setEmail] = useState(user.email ?? '');
  const [webhook, setWebhook] = useState(user.webhookUrl ?? '');
  const save = async () => {
    await patchUser(user, { email: orNull(email), webhook_url: orNull(webhook) });
    onDone(t('user.saved', { user: user.userId }));
  };
  return (
    <FormDialog title={t('user.editProfile')} submitLabel={t('action.save')} onSubmit={save} onClose={onClose}>
      <TextField label={t('field.email')} type="email" value={email} onChange={setEmail} />
      <TextField label={t('field.webhook_url')} hint={t('field.webhook_url.hint')} type="url" value={webhook} onChange={setWebhook} />
    </FormDialog>
  );
}

export function DeleteDialog({ user, onDone, onClose }: UserDialogProps) {
  const [typed, setTyped] = useState('');
  const remove = async () => {
    await api.call('DELETE', userPath(user.userId));
    onDone(t('user.deleted', { user: user.userId }));
  };
  return (
    <FormDialog
      title={t('user.delete.title', { user: user.userId })}
      submitLabel={t('user.delete')}
      danger
      disabled={typed !== user.userId}
      onSubmit={remove}
      onClose={onClose}
    >
      <p>{t('user.delete.text')}</p>
      <TextField label={t('user.delete.type')} value={typed} onChange={setTyped} />
    </FormDialog>
  );
}

function orNull(text: string): string | null {
  return text.trim() === '' ? null : text.trim();
}
