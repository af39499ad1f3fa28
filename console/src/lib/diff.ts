/** One leaf that differs, named by its path (`rate.capacity`). `undefined` means it was not there. */
export interface Change {
  path: string;
  before: unknown;
  after: unknown;
}

/** The leaves that differ between two JSON values; lists are compared whole. */
export function diffValues(before: unknown, after: unknown, path = ''): Change[] {
  if (same(before, after)) return [];
  if (!isObject(before) || !isObject(after)) return [{ path, before, after }];
  const names = [...Object.keys(before), ...Object.keys(after).filter((name) => !(name in before))];
  return names.flatMap((name) => diffValues(before[name], after[name], path === '' ? name : `${path}.${name}`));
}

/** Whether two JSON values are equal, whatever the order of their fields. */
export function same(left: unknown, right: unknown): boolean {
  if (Object.is(left, right)) return true;
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => same(item, right[index]));
  }
  if (!isObject(left) || !isObject(right)) return false;
  const names = Object.keys(left);
  return (
    names.length === Object.keys(right).length && names.every((name) => name in right && same(left[name], right[name]))
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
