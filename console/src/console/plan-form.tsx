import { Plus, Trash2 } from 'lucide-preact';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { ownWindow, type EndpointLimit, type Plan, type PlanRules, type RuleName } from '../lib/plan';
import type { Problems } from '../lib/plan-check';
import { CheckField, LimitField, NumberField, SelectField, TextField } from '../ui/field';

interface RuleProps<N extends RuleName> {
  value: PlanRules[N];
  onChange(value: PlanRules[N]): void;
  problems: Problems;
}

type RuleControl<N extends RuleName> = (props: RuleProps<N>) => ComponentChildren;

/** The control of each rule, for a plan and for one user's override alike. */
const CONTROLS: { [N in RuleName]: RuleControl<N> } = {
  daily_limit: limitControl('daily_limit'),
  monthly_token_limit: limitControl('monthly_token_limit'),
  max_tokens_per_request: limitControl('max_tokens_per_request'),
  tokens_per_minute: limitControl('tokens_per_minute'),
  max_concurrent: limitControl('max_concurrent'),
  max_tokens_mode: ({ value, onChange }) => (
    <SelectField
      label={t('field.max_tokens_mode')}
      value={value}
      onChange={onChange}
      options={[
        { value: 'reject', label: t('max_tokens_mode.reject') },
        { value: 'clamp', label: t('max_tokens_mode.clamp') },
      ]}
    />
  ),
  allowed_models: ModelsControl,
  rate: ({ value, onChange, problems }) => (
    <Optional value={value} off={t('field.unlimited')} start={{ capacity: 10, refill_per_minute: 10 }} onChange={onChange}>
      {(rate) => (
        <>
          <NumberField label={t('field.rate.capacity')} error={problem(problems, 'rate.capacity')} value={rate.capacity} onChange={(capacity) => onChange({ ...rate, capacity })} />
          <NumberField label={t('field.rate.refill_per_minute')} error={problem(problems, 'rate.refill_per_minute')} value={rate.refill_per_minute} onChange={(refill_per_minute) => onChange({ ...rate, refill_per_minute })} />
        </>
      )}
    </Optional>
  ),
  window: WindowControl,
  endpoints: EndpointsControl,
  reset: ({ value, onChange, problems }) => (
    <div class="fields">
      <SelectField
        label={t('field.reset.mode')}
        value={value.mode}
        onChange={(mode) => onChange({ ...value, mode })}
        options={[
          { value: 'calendar', label: t('reset.calendar') },
          { value: 'rolling', label: t('reset.rolling') },
        ]}
      />
      <TextField label={t('field.reset.timezone')} hint={t('field.reset.timezone.hint')} error={problem(problems, 'reset.timezone')} value={value.timezone} onChange={(timezone) => onChange({ ...value, timezone })} />
      <NumberField label={t('field.reset.billing_day')} min={1} max={31} error={problem(problems, 'reset.billing_day')} value={value.billing_day} onChange={(billing_day) => onChange({ ...value, billing_day })} />
    </div>
  ),
  over_quota: ({ value, onChange, problems }) => (
    <div class="fields">
      <SelectField
        label={t('field.over_quota.strategy')}
        value={value.strategy}
        onChange={(strategy) => onChange({ ...value, strategy })}
        options={[
          { value: 'reject', label: t('strategy.reject') },
          { value: 'degrade', label: t('strategy.degrade') },
          { value: 'queue', label: t('strategy.queue') },
        ]}
      />
      {value.strategy === 'degrade' && (
        <>
          <TextField label={t('field.over_quota.degrade_model')} error={problem(problems, 'over_quota.degrade_model')} value={value.degrade_model ?? ''} onChange={(model) => onChange({ ...value, degrade_model: model.trim() === '' ? null : model.trim() })} />
          <LimitField label={t('field.over_quota.degrade_daily_limit')} error={problem(problems, 'over_quota.degrade_daily_limit')} value={value.degrade_daily_limit} onChange={(degrade_daily_limit) => onChange({ ...value, degrade_daily_limit })} />
        </>
      )}
      {value.strategy === 'queue' && (
        <LimitField label={t('field.over_quota.queue_limit')} error={problem(problems, 'over_quota.queue_limit')} value={value.queue_limit} onChange={(queue_limit) => onChange({ ...value, queue_limit })} />
      )}
    </div>
  ),
  notify_at: NotifyControl,
  on_outage: ({ value, onChange }) => (
    <SelectField
      label={t('field.on_outage')}
      value={value}
      onChange={onChange}
      options={[
        { value: 'open', label: t('on_outage.open') },
        { value: 'closed', label: t('on_outage.closed') },
      ]}
    />
  ),
  shadow: ({ value, onChange }) => (
    <CheckField label={t('field.shadow')} hint={t('field.shadow.hint')} checked={value} onChange={onChange} />
  ),
};

interface RuleFieldProps<N extends RuleName> extends RuleProps<N> {
  name: N;
}

/** The control of one rule. */
export function RuleField<N extends RuleName>({ name, ...props }: RuleFieldProps<N>) {
  const Control: RuleControl<N> = CONTROLS[name];
  return <Control {...props} />;
}

/** The rules grouped as a person thinks of them, not as the JSON lists them. */
export const RULE_GROUPS = [
  { title: 'plan.group.quotas', names: ['daily_limit', 'monthly_token_limit', 'reset'] },
  { title: 'plan.group.request', names: ['max_tokens_per_request', 'max_tokens_mode', 'allowed_models'] },
  { title: 'plan.group.short', names: ['rate', 'window', 'tokens_per_minute', 'max_concurrent', 'endpoints'] },
  { title: 'plan.group.over', names: ['over_quota', 'notify_at'] },
  { title: 'plan.group.operation', names: ['on_outage', 'shadow'] },
] as const;

interface PlanFormProps {
  plan: Plan;
  isNew: boolean;
  problems: Problems;
  onChange(plan: Plan): void;
}

export function PlanForm({ plan, isNew, problems, onChange }: PlanFormProps) {
  return (
    <div class="stack">
      <fieldset class="card">
        <legend>{t('plan.group.name')}</legend>
        <div class="fields">
          {isNew && (
            <TextField label={t('field.plan_id')} hint={t('field.plan_id.hint')} error={problem(problems, 'plan_id')} value={plan.plan_id} onChange={(plan_id) => onChange({ ...plan, plan_id })} />
          )}
          <TextField label={t('field.name')} error={problem(problems, 'name')} value={plan.name} onChange={(name) => onChange({ ...plan, name })} />
        </div>
      </fieldset>
      {RULE_GROUPS.map((group) => (
        <fieldset key={group.title} class="card">
          <legend>{t(group.title)}</legend>
          <div class="fields">
            {group.names.map((name) => (
              <RuleSlot key={name} name={name} plan={plan} problems={problems} onChange={onChange} />
            ))}
          </div>
        </fieldset>
      ))}
    </div>
  );
}

function RuleSlot({ name, plan, problems, onChange }: { name: RuleName; plan: Plan; problems: Problems; onChange(plan: Plan): void }) {
  const field = (
    <RuleField name={name} value={plan[name]} problems={problems} onChange={(value) => onChange({ ...plan, [name]: value })} />
  );
  return isCompound(name) ? (
    <fieldset class="field-group">
      <legend>{t(`field.${name}`)}</legend>
      {field}
    </fieldset>
  ) : (
    field
  );
}

/** Rules of several fields need a name around them. */
function isCompound(name: RuleName): boolean {
  return ['reset', 'allowed_models', 'rate', 'window', 'endpoints', 'over_quota', 'notify_at'].includes(name);
}

type LimitName = 'daily_limit' | 'monthly_token_limit' | 'max_tokens_per_request' | 'tokens_per_minute' | 'max_concurrent';

function limitControl<N extends LimitName>(name: N) {
  return ({ value, onChange, problems }: RuleProps<N>) => (
    <LimitField label={t(`field.${name}`)} error={problem(problems, name)} value={value} onChange={onChange} />
  );
}

interface OptionalProps<T> {
  value: T | null;
  /** What it means to have none. */
  off: string;
  start: T;
  onChange(value: T | null): void;
  children(value: T): ComponentChildren;
}

function Optional<T>({ value, off, start, onChange, children }: OptionalProps<T>) {
  const [last, setLast] = useState(value ?? start);
  return (
    <div class="fields">
      <CheckField
        label={off}
        checked={value === null}
        onChange={(isOff) => {
          if (value !== null) setLast(value);
          onChange(isOff ? null : last);
        }}
      />
      {value !== null && children(value)}
    </div>
  );
}

function WindowControl({ value, onChange, problems }: RuleProps<'window'>) {
  const own = ownWindow(value);
  const [last, setLast] = useState(own ?? { max_requests: 500, minutes: 300 });
  const set = (window: typeof last) => {
    setLast(window);
    onChange(window);
  };
  return (
    <div class="fields">
      <SelectField
        label={t('field.window.kind')}
        value={own ? 'own' : value === null ? 'none' : 'default'}
        onChange={(kind) => onChange(kind === 'own' ? last : kind === 'none' ? null : 'default')}
        options={[
          { value: 'default', label: t('field.window.default') },
          { value: 'none', label: t('field.unlimited') },
          { value: 'own', label: t('field.window.own') },
        ]}
      />
      {own && (
        <>
          <NumberField label={t('field.window.max_requests')} error={problem(problems, 'window.max_requests')} value={own.max_requests} onChange={(max_requests) => set({ ...own, max_requests })} />
          <NumberField label={t('field.window.minutes')} min={1} error={problem(problems, 'window.minutes')} value={own.minutes} onChange={(minutes) => set({ ...own, minutes })} />
        </>
      )}
    </div>
  );
}

function ModelsControl({ value, onChange, problems }: RuleProps<'allowed_models'>) {
  return (
    <Optional value={value} off={t('field.allowed_models.all')} start={[]} onChange={onChange}>
      {(models) => (
        <ListInput
          label={t('field.allowed_models.list')}
          hint={t('field.allowed_models.hint')}
          error={problem(problems, 'allowed_models')}
          items={models}
          onChange={onChange}
        />
      )}
    </Optional>
  );
}

interface ListInputProps {
  label: string;
  hint: string;
  error: string | undefined;
  items: string[];
  onChange(items: string[]): void;
}

/** A comma-separated list; what is typed stays as typed until the list is read from it. */
function ListInput({ label, hint, error, items, onChange }: ListInputProps) {
  const [text, setText] = useState(items.join(', '));
  return (
    <TextField
      label={label}
      hint={hint}
      error={error}
      value={text}
      onChange={(next) => {
        setText(next);
        onChange(next.split(/[,，\s]+/).filter((item) => item !== ''));
      }}
    />
  );
}

function NotifyControl({ value, onChange, problems }: RuleProps<'notify_at'>) {
  return (
    <ListInput
      label={t('field.notify_at.list')}
      hint={t('field.notify_at.hint')}
      error={problem(problems, 'notify_at')}
      // Shares are binary fractions: 0.07 * 100 is not 7.
      items={value.map((share) => String(Math.round(share * 1e6) / 1e4))}
      onChange={(items) => onChange(items.map((item) => Number(item.replace(/%$/, '')) / 100))}
    />
  );
}

function EndpointsControl({ value, onChange, problems }: RuleProps<'endpoints'>) {
  const change = (index: number, part: Partial<EndpointLimit>) =>
    onChange(value.map((one, at) => (at === index ? { ...one, ...part } : one)));
  return (
    <div class="stack-s">
      {value.length === 0 && <p class="small muted">{t('field.endpoints.none')}</p>}
      {value.map((endpoint, index) => (
        <div key={index} class="endpoint" role="group" aria-label={endpoint.name || t('field.endpoints.new')}>
          <TextField label={t('field.endpoints.name')} error={problem(problems, `endpoints.${index}.name`)} value={endpoint.name} onChange={(name) => change(index, { name: name.trim() })} />
          <NumberField label={t('field.endpoints.max_requests')} error={problem(problems, `endpoints.${index}.max_requests`)} value={endpoint.max_requests} onChange={(max_requests) => change(index, { max_requests })} />
          <NumberField label={t('field.endpoints.per_seconds')} min={1} error={problem(problems, `endpoints.${index}.per_seconds`)} value={endpoint.per_seconds} onChange={(per_seconds) => change(index, { per_seconds })} />
          <button
            type="button"
            class="button button-quiet"
            aria-label={t('field.endpoints.remove', { name: endpoint.name || String(index + 1) })}
            onClick={() => onChange(value.filter((_, at) => at !== index))}
          >
            <Trash2 aria-hidden="true" size={16} />
          </button>
        </div>
      ))}
      <button type="button" class="button button-small" onClick={() => onChange([...value, { name: '', max_requests: 10, per_seconds: 3600 }])}>
        <Plus aria-hidden="true" size={16} />
        {t('field.endpoints.add')}
      </button>
    </div>
  );
}

function problem(problems: Problems, path: string): string | undefined {
  const found = problems[path];
  return found && t(`problem.${found}`);
}
