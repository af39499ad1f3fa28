/** A source of numbers that gives the same ones for the same seed (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
  const below = (bound) => Math.floor(next() * bound);
  return { below, between: (from, to) => from + below(to - from + 1), chance: (share) => next() < share, pick: (list) => list[below(list.length)] };
}
