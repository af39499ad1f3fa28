import type { ComponentChildren } from 'preact';
import { useId, useState } from 'preact/hooks';
import { t } from '../i18n';
import { LARGEST } from '../lib/plan-check';

interface FrameProps {
  label: string;
  hint?: string | undefined;
  error?: string | undefined;
}

interface ControlProps {
  id: string;
  'aria-describedby': string | undefined;
  'aria-invalid': boolean;
}

/** Label, hint and error around one control, tied together for screen readers. */
function Frame({ label, hint, error, children }: FrameProps & { children: (control: ControlProps) => ComponentChildren }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ');
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, 'aria-describedby': described || undefined, 'aria-invalid': error !== undefined })}
      {hint && (
        <p id={`${id}-hint`} class="small muted">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} class="small field-error">
          {error}
        </p>
      )}
    </div>
  );
}

interface TextFieldProps extends FrameProps {
  value: string;
  onChange(value: string): void;
  secret?: boolean;
  required?: boolean;
  disabled?: boolean;
  type?: 'text' | 'email' | 'url' | 'search' | 'datetime-local';
  placeholder?: string;
}

export function TextField({ value, onChange, secret, required, disabled, type = 'text', placeholder, ...frame }: TextFieldProps) {
  return (
    <Frame {...frame}>
      {(control) => (
        <input
          {...control}
          type={secret ? 'password' : type}
          value={value}
          required={required}
          disabled={disabled}
          placeholder={placeholder}
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
    </Frame>
  );
}

interface NumberFieldProps extends FrameProps {
  value: number;
  onChange(value: number): void;
  min?: number;
  max?: number;
  step?: number | 'any';
}

/** A number; what is not one is handed over as `NaN`, for the form to refuse. */
export function NumberField({ value, onChange, min = 0, max = LARGEST, step = 1, ...frame }: NumberFieldProps) {
  return (
    <Frame {...frame}>
      {(control) => (
        <NumberInput control={control} value={value} min={min} max={max} step={step} onChange={onChange} />
      )}
    </Frame>
  );
}

interface LimitFieldProps extends FrameProps {
  value: number | null;
  onChange(value: number | null): void;
  /** What `null` means here. */
  nullLabel?: string;
}

/** A limit: a number, or none at all. Zero is a limit like any other. */
export function LimitField({ value, onChange, nullLabel, ...frame }: LimitFieldProps) {
  const [last, setLast] = useState(value ?? 0);
  const unlimited = value === null;
  const name = nullLabel ?? t('field.unlimited');
  return (
    <Frame {...frame}>
      {(control) => (
        <div class="limit">
          {unlimited ? (
            <input {...control} type="text" value="–" disabled />
          ) : (
            <NumberInput
              control={control}
              value={value}
              min={0}
              max={LARGEST}
              step={1}
              onChange={(next) => {
                setLast(next);
                onChange(next);
              }}
            />
          )}
          <label class="check">
            <input
              type="checkbox"
              checked={unlimited}
              aria-label={`${frame.label}: ${name}`}
              onChange={(event) => onChange(event.currentTarget.checked ? null : last)}
            />
            <span aria-hidden="true">{name}</span>
          </label>
        </div>
      )}
    </Frame>
  );
}

interface NumberInputProps {
  control: ControlProps;
  value: number;
  min: number;
  max: number;
  step: number | 'any';
  onChange(value: number): void;
}

function NumberInput({ control, value, min, max, step, onChange }: NumberInputProps) {
  return (
    <input
      {...control}
      type="number"
      inputMode="numeric"
      value={Number.isNaN(value) ? '' : value}
      min={min}
      max={max}
      step={step}
      onInput={(event) => onChange(event.currentTarget.valueAsNumber)}
    />
  );
}

interface SelectFieldProps<T extends string> extends FrameProps {
  value: T;
  onChange(value: NoInfer<T>): void;
  options: readonly { value: NoInfer<T>; label: string }[];
}

export function SelectField<T extends string>({ value, onChange, options, ...frame }: SelectFieldProps<T>) {
  return (
    <Frame {...frame}>
      {(control) => (
        <select {...control} value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
          {options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      )}
    </Frame>
  );
}

interface CheckFieldProps {
  label: string;
  hint?: string;
  checked: boolean;
  onChange(checked: boolean): void;
}

export function CheckField({ label, hint, checked, onChange }: CheckFieldProps) {
  const id = useId();
  return (
    <div class="field">
      <label class="check">
        <input
          type="checkbox"
          checked={checked}
          aria-describedby={hint && id}
          onChange={(event) => onChange(event.currentTarget.checked)}
        />
        {label}
      </label>
      {hint && (
        <p id={id} class="small muted">
          {hint}
        </p>
      )}
    </div>
  );
}
