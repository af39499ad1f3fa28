import { Plus } from 'lucide-preact';
import { Link, useLocation } from 'wouter-preact';
import { t } from '../../i18n';
import { compact, number } from '../../lib/format';
import { planPage } from '../../lib/links';
import type { Plan } from '../../lib/plan';
import { useResource } from '../../lib/resource';
import { Badge, Card, Page } from '../../ui/page';
import { Empty, Loaded } from '../../ui/states';
import { Table } from '../../ui/table';
import { loadPlans } from '../gateway';

export function PlansPage() {
  const plans = useResource('plans', loadPlans);
  const [, navigate] = useLocation();
  return (
    <Page
      title={t('nav.plans')}
      lead={t('plans.lead')}
      actions={
        <button type="button" class="button button-main" onClick={() => navigate('/new-plan')}>
          <Plus aria-hidden="true" size={16} />
          {t('plans.new')}
        </button>
      }
    >
      <Card title={t('plans.list')}>
        <Loaded of={plans}>
          {(rows) =>
            rows.length === 0 ? <Empty title={t('plans.none')}>{t('plans.none.hint')}</Empty> : <PlanTable plans={rows} />
          }
        </Loaded>
      </Card>
    </Page>
  );
}

function PlanTable({ plans }: { plans: Plan[] }) {
  return (
    <Table
      caption={t('plans.list')}
      rows={plans}
      rowKey={(plan) => plan.plan_id}
      columns={[
        {
          label: t('col.plan'),
          names: true,
          cell: (plan) => (
            <>
              <Link href={planPage(plan.plan_id)}>{plan.name}</Link>{' '}
              {plan.name !== plan.plan_id && <code class="muted">{plan.plan_id}</code>}
            </>
          ),
        },
        { label: t('field.daily_limit'), number: true, cell: (plan) => limit(plan.daily_limit) },
        { label: t('field.monthly_token_limit'), number: true, cell: (plan) => limit(plan.monthly_token_limit) },
        { label: t('field.rate'), number: true, cell: (plan) => (plan.rate ? t('plan.rate', { n: number(plan.rate.refill_per_minute) }) : t('field.unlimited')) },
        { label: t('field.allowed_models'), cell: models },
        { label: t('field.over_quota'), cell: (plan) => <Badge>{t(`strategy.${plan.over_quota.strategy}`)}</Badge> },
        { label: t('col.status'), cell: (plan) => (plan.shadow ? <Badge tone="warn">{t('plan.shadow')}</Badge> : <Badge tone="good">{t('plan.enforced')}</Badge>) },
      ]}
    />
  );
}

function limit(value: number | null): string {
  if (value === null) return t('field.unlimited');
  return value >= 100_000 ? compact(value) : number(value);
}

function models({ allowed_models: allowed }: Plan): string {
  if (allowed === null) return t('field.allowed_models.all');
  return allowed.length === 0 ? t('value.none') : allowed.join(', ');
}
