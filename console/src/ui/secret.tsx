import { Check, Copy } from 'lucide-preact';
import { useState } from 'preact/hooks';
import { t } from '../i18n';

/** A value to be copied away, shown in full. */
export function Secret({ label, value }: { label: string; value: string }) {
  const [copied, setCopied] = useState(false);
  // Without permission nothing is copied; the field can still be selected by hand.
  const copy = () => navigator.clipboard.writeText(value).then(() => setCopied(true), () => undefined);
  return (
    <div class="secret">
      <input type="text" aria-label={label} readOnly value={value} onFocus={(event) => event.currentTarget.select()} />
      <button type="button" class="button" onClick={copy}>
        {copied ? <Check aria-hidden="true" size={16} /> : <Copy aria-hidden="true" size={16} />}
        {copied ? t('action.copied') : t('action.copy')}
      </button>
    </div>
  );
}
