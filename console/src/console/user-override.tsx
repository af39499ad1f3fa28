import { useState } from 'preact/hooks';
import { t, tn } from '../i18n';
import { readPlan, type Overrides, type Plan, type RuleName } from '../lib/plan';
import { checkRules, type Problems } from '../lib/plan-check';
import { useResource } from '../lib/resource';
import { FormDialog } from '../ui/dialog';
import { CheckField } from '../ui/field';
import { Loaded } from '../ui/states';
import { api, userPath } from './gateway';
import { RULE_GROUPS, RuleField } from './plan-form';
import type { UserDialogProps } from './user-actions';

/** Rules that hold for this user whatever the plan says. Saving replaces the whole set. */
export function OverrideDialog({ user, onDone, onClose }: UserDialogProps) {
  const [overrides, setOverrides] = useState<Overrides>(user.overrides);
  const plan = useResource(`plan ${user.planId}`, async (signal) =>
    readPlan(await api.call('GET', `/admin/plans/${encodeURIComponent(user.planId)}`, { signal })),
  );
  const problems = checkRules(overrides);
  const bad = Object.keys(problems).length;
  const save = async () => {
    await api.call('PATCH', userPath(user.userId), { body: { overrides } });
    onDone(t('user.saved', { user: user.userId }));
  };
  return (
    <FormDialog
      wide
      title={t('user.override.title', { user: user.userId })}
      submitLabel={t('action.save')}
      disabled={bad > 0 || plan.data === null}
      onSubmit={save}
      onClose={onClose}
    >
      <p class="muted">{t('user.override.text')}</p>
      <Loaded of={plan}>
        {(data) => (
          <div class="stack">
            {RULE_GROUPS.map((group) => (
              <fieldset key={group.title} class="field-group">
                <legend>{t(group.title)}</legend>
                {group.names.map((name) => (
                  <OverrideRule key={name} name={name} plan={data} overrides={overrides} problems={problems} onChange={setOverrides} />
                ))}
              </fieldset>
            ))}
          </div>
        )}
      </Loaded>
      {bad > 0 && <p class="field-error">{tn('plan.problems', bad)}</p>}
    </FormDialog>
  );
}

interface OverrideRuleProps {
  name: RuleName;
  plan: Plan;
  overrides: Overrides;
  problems: Problems;
  onChange(overrides: Overrides): void;
}

function OverrideRule({ name, plan, overrides, problems, onChange }: OverrideRuleProps) {
  const value = overrides[name];
  const toggle = (on: boolean) => {
    if (on) return onChange({ ...overrides, [name]: plan[name] });
    const { [name]: _dropped, ...rest } = overrides;
    onChange(rest);
  };
  return (
    <div class="override">
      <CheckField label={t('user.override.rule', { rule: t(`field.${name}`) })} checked={value !== undefined} onChange={toggle} />
      {value !== undefined && (
        <div class="override-control">
          <RuleField
            name={name}
            value={value}
            problems={problems}
            onChange={(next) => onChange({ ...overrides, [name]: next })}
          />
        </div>
      )}
    </div>
  );
}
