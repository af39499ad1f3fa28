import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { t } from '../i18n';

let pagesOpened = 0;

interface PageProps {
  title: string;
  lead?: string;
  /** What stands beside the title, such as a status. */
  aside?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** One page: its heading takes the focus when it opens, so that keyboard and screen reader start there. */
export function Page({ title, lead, aside, actions, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    // Not on the first page: the browser has only just read out the document itself.
    if (pagesOpened++ > 0) heading.current?.focus();
  }, []);
  useEffect(() => {
    document.title = `${title} · ${t('app.name')}`;
  }, [title]);
  return (
    <div class="page">
      <header class="page-head">
        <div>
          <div class="row">
            <h1 ref={heading} tabIndex={-1}>
              {title}
            </h1>
            {aside}
          </div>
          {lead && <p class="muted">{lead}</p>}
        </div>
        {actions && <div class="row">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

interface CardProps {
  title: string;
  hint?: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

export function Card({ title, hint, actions, children }: CardProps) {
  const id = useId();
  return (
    <section class="card" aria-labelledby={id}>
      <header class="card-head">
        <div>
          <h2 id={id}>{title}</h2>
          {hint && <p class="small muted">{hint}</p>}
        </div>
        {actions && <div class="row">{actions}</div>}
      </header>
      {children}
    </section>
  );
}

export type Tone = 'neutral' | 'good' | 'warn' | 'bad' | 'info';

export function Badge({ tone = 'neutral', children }: { tone?: Tone; children: ComponentChildren }) {
  return <span class={`badge badge-${tone}`}>{children}</span>;
}
