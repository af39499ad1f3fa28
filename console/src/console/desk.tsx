import { ClipboardList, Gauge, ListChecks, Route as RouteIcon, Users, Waypoints } from 'lucide-preact';
import { Redirect, Route, Router, Switch } from 'wouter-preact';
import { useHashLocation } from 'wouter-preact/use-hash-location';
import { t } from '../i18n';
import { fromSegment } from '../lib/links';
import { Shell } from '../ui/shell';
import { SignIn } from '../ui/sign-in';
import { Toasts } from '../ui/toast';
import { session } from './gateway';
import { AuditPage } from './pages/audit';
import { JobsPage } from './pages/jobs';
import { OverviewPage } from './pages/overview';
import { PlanPage } from './pages/plan';
import { PlansPage } from './pages/plans';
import { RoutingPage } from './pages/routing';
import { UserPage } from './pages/user';
import { UsersPage } from './pages/users';

/** The operator's desk. Its pages live behind the hash, so one static file serves them all. */
export function Desk() {
  if (session.credential.value === null) return <OperatorSignIn />;
  return (
    <Router hook={useHashLocation}>
      <Shell name={t('console.name')} nav={navigation()} onSignOut={session.signOut}>
        <Switch>
          <Route path="/" component={OverviewPage} />
          <Route path="/users" component={UsersPage} />
          <Route path="/users/:id">{({ id }) => <UserPage key={id} id={fromSegment(id)} />}</Route>
          <Route path="/plans" component={PlansPage} />
          <Route path="/plans/:id">{({ id }) => <PlanPage key={id} id={fromSegment(id)} />}</Route>
          <Route path="/new-plan">
            <PlanPage id={null} />
          </Route>
          <Route path="/routing" component={RoutingPage} />
          <Route path="/jobs" component={JobsPage} />
          <Route path="/audit" component={AuditPage} />
          <Route>
            <Redirect to="/" />
          </Route>
        </Switch>
      </Shell>
      <Toasts />
    </Router>
  );
}

function OperatorSignIn() {
  return (
    <SignIn
      session={session}
      title={t('console.signIn')}
      lead={t('console.signIn.lead')}
      label={t('console.token')}
      hint={t('signIn.hint')}
      probe="/admin/plans?limit=1"
    />
  );
}

function navigation() {
  return [
    { href: '/', label: t('nav.overview'), icon: Gauge },
    { href: '/users', label: t('nav.users'), icon: Users },
    { href: '/plans', label: t('nav.plans'), icon: Waypoints },
    { href: '/routing', label: t('nav.routing'), icon: RouteIcon },
    { href: '/jobs', label: t('nav.jobs'), icon: ListChecks },
    { href: '/audit', label: t('nav.audit'), icon: ClipboardList },
  ];
}
