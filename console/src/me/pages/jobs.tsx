import { useState } from 'preact/hooks';
import { t } from '../../i18n';
import { gatewayNow } from '../../lib/clock';
import { dateTime, duration } from '../../lib/format';
import { completionText, readJob, type Job } from '../../lib/model';
import { asPage } from '../../lib/read';
import { useListing } from '../../lib/resource';
import { FormDialog } from '../../ui/dialog';
import { JobBadge } from '../../ui/job-badge';
import { Card, Page } from '../../ui/page';
import { Empty, Loaded } from '../../ui/states';
import { toast } from '../../ui/toast';
import { api } from '../gateway';

const POLL_MS = 5000;

export function JobsPage() {
  const [cancelling, setCancelling] = useState<Job | null>(null);
  const jobs = useListing<Job>(
    'jobs',
    async (cursor, signal) => asPage(await api.call('GET', '/api/jobs', { query: { cursor }, ...(signal ? { signal } : {}) }), readJob),
    POLL_MS,
  );
  return (
    <Page title={t('nav.jobs')} lead={t('myJobs.lead')}>
      <Card title={t('jobs.list')}>
        <Loaded of={jobs}>
          {(rows) =>
            rows.length === 0 ? (
              <Empty title={t('myJobs.none')}>{t('myJobs.none.hint')}</Empty>
            ) : (
              <ul class="stack">
                {rows.map((job) => (
                  <li key={job.id}>
                    <JobItem job={job} onCancel={() => setCancelling(job)} />
                  </li>
                ))}
              </ul>
            )
          }
        </Loaded>
        {jobs.hasMore && (
          <button type="button" class="button" disabled={jobs.loadingMore} onClick={jobs.loadMore}>
            {t('action.loadMore')}
          </button>
        )}
      </Card>
      {cancelling && <CancelDialog job={cancelling} onDone={jobs.reload} onClose={() => setCancelling(null)} />}
    </Page>
  );
}

function JobItem({ job, onCancel }: { job: Job; onCancel(): void }) {
  return (
    <article class="job">
      <header class="row row-between">
        <div class="row">
          <h3>
            <code class="breakable">{job.id}</code>
          </h3>
          <JobBadge status={job.status} />
        </div>
        {job.status === 'queued' && (
          <button type="button" class="button button-small button-danger-quiet" aria-label={t('jobs.cancel.one', { id: job.id })} onClick={onCancel}>
            {t('jobs.cancel')}
          </button>
        )}
      </header>
      <p class="small muted">
        {job.createdAtMs !== null && t('myJobs.created', { time: dateTime(job.createdAtMs) })}
        <Waiting job={job} />
      </p>
      {job.errorText && (
        <p class="notice notice-bad" lang="en">
          {job.errorText}
        </p>
      )}
      {job.result !== null && <Result result={job.result} />}
    </article>
  );
}

function Waiting({ job }: { job: Job }) {
  if (job.status !== 'queued' || job.notBeforeMs === null) return null;
  const left = job.notBeforeMs - gatewayNow();
  return <> · {left > 0 ? t('myJobs.startsIn', { time: duration(left) }) : t('myJobs.startsSoon')}</>;
}

function Result({ result }: { result: unknown }) {
  const text = completionText(result);
  return (
    <details>
      <summary>{t('myJobs.result')}</summary>
      {text === null ? <pre class="result">{JSON.stringify(result, null, 2)}</pre> : <div class="result">{text}</div>}
    </details>
  );
}

function CancelDialog({ job, onDone, onClose }: { job: Job; onDone(): void; onClose(): void }) {
  const cancel = async () => {
    await api.call('DELETE', `/api/jobs/${encodeURIComponent(job.id)}`);
    toast(t('jobs.cancelled'));
    onDone();
  };
  return (
    <FormDialog title={t('jobs.cancel.one', { id: job.id })} submitLabel={t('jobs.cancel')} danger onSubmit={cancel} onClose={onClose}>
      <p>{t('myJobs.cancel.text')}</p>
    </FormDialog>
  );
}
