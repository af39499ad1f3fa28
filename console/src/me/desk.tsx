import { Gauge, Inbox, ListChecks, MessageSquare } from 'lucide-preact';
import { Redirect, Route, Router, Switch } from 'wouter-preact';
import { useHashLocation } from 'wouter-preact/use-hash-location';
import { t } from '../i18n';
import { useListing, useResource } from '../lib/resource';
import { Shell } from '../ui/shell';
import { SignIn } from '../ui/sign-in';
import { Toasts } from '../ui/toast';
import { useConversation } from './conversation';
import { loadNotices, loadQuota, MineProvider, session } from './gateway';
import { InboxPage } from './pages/inbox';
import { JobsPage } from './pages/jobs';
import { PlaygroundPage } from './pages/playground';
import { UsagePage } from './pages/usage';

const QUOTA_POLL_MS = 15_000;
const INBOX_POLL_MS = 60_000;

/** The caller's own desk. Its pages live behind the hash, so one static file serves them all. */
export function Desk() {
  if (session.credential.value === null) return <CallerSignIn />;
  return (
    <Router hook={useHashLocation}>
      <SignedIn />
      <Toasts />
    </Router>
  );
}

function SignedIn() {
  const quota = useResource('quota', loadQuota, QUOTA_POLL_MS);
  const notices = useListing('notices', loadNotices, INBOX_POLL_MS);
  const conversation = useConversation(quota.reload);
  const unread = notices.data?.filter((notice) => !notice.read).length ?? 0;
  const nav = [
    { href: '/', label: t('nav.usage'), icon: Gauge },
    { href: '/playground', label: t('nav.playground'), icon: MessageSquare },
    { href: '/jobs', label: t('nav.jobs'), icon: ListChecks },
    { href: '/inbox', label: t('nav.inbox'), icon: Inbox, count: unread },
  ];
  return (
    <MineProvider value={{ quota, notices, conversation }}>
      <Shell name={quota.data?.userId || t('me.name')} nav={nav} onSignOut={session.signOut}>
        <Switch>
          <Route path="/" component={UsagePage} />
          <Route path="/playground" component={PlaygroundPage} />
          <Route path="/jobs" component={JobsPage} />
          <Route path="/inbox" component={InboxPage} />
          <Route>
            <Redirect to="/" />
          </Route>
        </Switch>
      </Shell>
    </MineProvider>
  );
}

function CallerSignIn() {
  return (
    <SignIn
      session={session}
      title={t('me.signIn')}
      lead={t('me.signIn.lead')}
      label={t('me.key')}
      hint={t('signIn.hint')}
      probe="/api/quota"
    />
  );
}
