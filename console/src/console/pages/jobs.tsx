import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { t } from '../../i18n';
import { number } from '../../lib/format';
import { userPage } from '../../lib/links';
import { isOpenJob, JOB_STATUSES, readJob, type Job, type JobStatus } from '../../lib/model';
import { asPage } from '../../lib/read';
import { useListing } from '../../lib/resource';
import { FormDialog } from '../../ui/dialog';
import { JobBadge } from '../../ui/job-badge';
import { Moment } from '../../ui/moment';
import { Card, Page } from '../../ui/page';
import { Empty } from '../../ui/states';
import { ListTable } from '../../ui/table';
import { toast } from '../../ui/toast';
import { api } from '../gateway';

const POLL_MS = 10_000;

type Open = { action: 'retry' | 'cancel'; job: Job };

export function JobsPage() {
  const [status, setStatus] = useState<JobStatus | ''>('');
  const [open, setOpen] = useState<Open | null>(null);
  const jobs = useListing<Job>(
    `jobs ${status}`,
    async (cursor, signal) =>
      asPage(await api.call('GET', '/admin/jobs', { query: { status, cursor }, ...(signal ? { signal } : {}) }), readJob),
    POLL_MS,
  );
  return (
    <Page title={t('nav.jobs')} lead={t('jobs.lead')}>
      <Card title={t('jobs.list')}>
        <StatusFilter status={status} onPick={setStatus} />
        <ListTable
          of={jobs}
          caption={t('jobs.list')}
          rowKey={(job) => job.id}
          empty={<Empty title={t('jobs.none')}>{t('jobs.none.hint')}</Empty>}
          columns={[
            { label: t('col.job'), names: true, cell: (job) => <code class="breakable">{job.id}</code> },
            { label: t('col.user'), cell: (job) => (job.userId ? <Link href={userPage(job.userId)}>{job.userId}</Link> : '–') },
            { label: t('col.status'), cell: (job) => <JobBadge status={job.status} /> },
            { label: t('col.created'), cell: (job) => <Moment at={job.createdAtMs} /> },
            { label: t('col.notBefore'), cell: (job) => <Moment at={isOpenJob(job) ? job.notBeforeMs : null} /> },
            { label: t('col.attempts'), number: true, cell: (job) => number(job.attempts) },
            { label: t('col.error'), cell: (job) => (job.errorText ? <span lang="en">{job.errorText}</span> : <span class="muted">–</span>) },
            { label: t('col.actions'), cell: (job) => <JobActions job={job} onPick={(action) => setOpen({ action, job })} /> },
          ]}
        />
      </Card>
      {open && <JobDialog open={open} onDone={jobs.reload} onClose={() => setOpen(null)} />}
    </Page>
  );
}

function StatusFilter({ status, onPick }: { status: JobStatus | ''; onPick(status: JobStatus | ''): void }) {
  return (
    <div class="segments" role="group" aria-label={t('jobs.filter')}>
      {(['', ...JOB_STATUSES] as const).map((one) => (
        <button key={one} type="button" aria-pressed={one === status} onClick={() => onPick(one)}>
          {one === '' ? t('jobs.all') : t(`job.${one}`)}
        </button>
      ))}
    </div>
  );
}

function JobActions({ job, onPick }: { job: Job; onPick(action: Open['action']): void }) {
  if (job.status === 'queued') {
    return (
      <button type="button" class="button button-small button-danger-quiet" aria-label={t('jobs.cancel.one', { id: job.id })} onClick={() => onPick('cancel')}>
        {t('jobs.cancel')}
      </button>
    );
  }
  if (job.status === 'failed' || job.status === 'expired') {
    return (
      <button type="button" class="button button-small" aria-label={t('jobs.retry.one', { id: job.id })} onClick={() => onPick('retry')}>
        {t('jobs.retry')}
      </button>
    );
  }
  return <span class="muted">–</span>;
}

function JobDialog({ open, onDone, onClose }: { open: Open; onDone(): void; onClose(): void }) {
  const { action, job } = open;
  const act = async () => {
    await api.call('POST', `/admin/jobs/${encodeURIComponent(job.id)}/${action}`);
    toast(t(action === 'retry' ? 'jobs.retried' : 'jobs.cancelled'));
    onDone();
  };
  const isCancel = action === 'cancel';
  return (
    <FormDialog
      title={t(isCancel ? 'jobs.cancel.one' : 'jobs.retry.one', { id: job.id })}
      submitLabel={t(isCancel ? 'jobs.cancel' : 'jobs.retry')}
      danger={isCancel}
      onSubmit={act}
      onClose={onClose}
    >
      <p>{t(isCancel ? 'jobs.cancel.text' : 'jobs.retry.text')}</p>
    </FormDialog>
  );
}
