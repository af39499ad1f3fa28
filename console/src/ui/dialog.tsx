import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { X } from 'lucide-preact';
import { t } from '../i18n';
import { toApiError, type ApiError } from '../lib/api';
import { ErrorState } from './states';

interface DialogProps {
  title: string;
  onClose(): void;
  wide?: boolean;
  children: ComponentChildren;
}

/** A modal dialog for as long as it is rendered. */
export function Dialog({ title, onClose, wide, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    // Closing, unlike removing, gives the focus back to where it came from.
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? 'dialog dialog-wide' : 'dialog'}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="button button-quiet" aria-label={t('action.close')} onClick={onClose}>
          <X aria-hidden="true" size={18} />
        </button>
      </header>
      {children}
    </dialog>
  );
}

interface FormDialogProps extends DialogProps {
  submitLabel: string;
  /** Does the work; the dialog closes when it succeeds and shows the failure when it does not. */
  onSubmit(): Promise<unknown>;
  danger?: boolean;
  disabled?: boolean;
}

export function FormDialog({ title, onClose, wide, submitLabel, onSubmit, danger, disabled, children }: FormDialogProps) {
  const [error, setError] = useState<ApiError | null>(null);
  const [pending, setPending] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (pending) return;
    setPending(true);
    setError(null);
    try {
      await onSubmit();
      onClose();
    } catch (cause) {
      setError(toApiError(cause));
      setPending(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose} {...(wide ? { wide } : {})}>
      <form class="stack" onSubmit={submit}>
        {children}
        {error && <ErrorState error={error} />}
        <footer class="dialog-foot">
          <button type="button" class="button" onClick={onClose}>
            {t('action.cancel')}
          </button>
          <button
            type="submit"
            class={danger ? 'button button-danger' : 'button button-main'}
            disabled={pending || disabled}
          >
            {pending ? t('action.pending') : submitLabel}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
