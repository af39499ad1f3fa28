import { t } from '../i18n';
import type { JobStatus } from '../lib/model';
import { Badge, type Tone } from './page';

const TONES: Record<JobStatus, Tone> = {
  queued: 'info',
  running: 'info',
  succeeded: 'good',
  failed: 'bad',
  cancelled: 'neutral',
  expired: 'warn',
};

export function JobBadge({ status }: { status: JobStatus }) {
  return <Badge tone={TONES[status]}>{t(`job.${status}`)}</Badge>;
}
