// Sums of what calls may have cost. A cost is an object of numbers by name; a call has a list of costs, one of which it
// has had.

/** Most sums that are looked at together; where there are more, only the least and the greatest are compared. */
const most = 200_000;

/** The sum of two costs. */
export function plus(one, other) {
  const sum = { ...one };
  for (const [name, value] of Object.entries(other)) sum[name] = (sum[name] ?? 0) + value;
  return sum;
}

/** The different ones among costs. */
export function distinct(costs) {
  const seen = new Map(costs.map((cost) => [JSON.stringify(Object.entries(cost).filter(([, n]) => n !== 0).sort()), cost]));
  return [...seen.values()];
}

/**
 * Why `target` can't be the sum of one cost of every list, in words; undefined if it can. Names that are missing are 0.
 */
export function contradiction(lists, target) {
  const names = [...new Set([target, ...lists.flat()].flatMap(Object.keys))].sort();
  const row = (cost) => names.map((name) => cost[name] ?? 0);
  const open = lists.map((list) => distinct(list).map(row)).sort((a, b) => b.length - a.length);
  const goal = row(target);
  const bounds = boundsOf(open, names.length);
  const outside = names.filter((_, i) => goal[i] < bounds[0].least[i] || goal[i] > bounds[0].most[i]);
  if (outside.length > 0) return outside.map((name) => told(name, names.indexOf(name), goal, bounds[0])).join(", ");
  return reaches(open, goal, bounds) ? undefined : `${JSON.stringify(target)} is no sum of what the calls may have cost`;
}

function told(name, i, goal, { least, most }) {
  return `${name} ${goal[i]}, must be ${least[i]}${most[i] > least[i] ? ` to ${most[i]}` : ""}`;
}

/** From each list on, the least and the greatest that it and those behind it can add. */
function boundsOf(lists, width) {
  const bounds = [{ least: Array(width).fill(0), most: Array(width).fill(0) }];
  for (const rows of lists.toReversed()) {
    const { least, most } = bounds[0];
    const at = (i) => rows.map((row) => row[i]);
    bounds.unshift({ least: least.map((n, i) => n + Math.min(...at(i))), most: most.map((n, i) => n + Math.max(...at(i))) });
  }
  return bounds;
}

function reaches(lists, goal, bounds) {
  let missing = new Map([[goal.join(), goal]]);
  for (const [n, rows] of lists.entries()) {
    const { least, most: greatest } = bounds[n + 1];
    const next = new Map();
    for (const left of missing.values()) {
      for (const row of rows) {
        const rest = left.map((value, i) => value - row[i]);
        if (rest.every((value, i) => value >= least[i] && value <= greatest[i])) next.set(rest.join(), rest);
      }
    }
    if (next.size > most) return true;
    missing = next;
  }
  return missing.size > 0;
}
