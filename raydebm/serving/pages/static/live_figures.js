// Adding up what several replicas saw, and reading figures from the sums. No document here.

const BARS_PER_DECADE = 20;
export const MAX_BARS = 30;
const MAX_BINS = 90;

/** One set of figures from those of every replica. */
export function addUp(all) {
  const total = {
    running: 0, waiting: 0, bins: new Map(), routes: new Map(), stages: new Map(), generators: new Map(),
    sigma: { accept: new Map(), abstain: new Map(), width: 1 }, energy: { accept: new Map(), abstain: new Map(), width: 1 },
    passes: new Map(), violations: new Map(), writer: null,
  };
  for (const found of all) {
    total.running += found.running;
    total.waiting += found.waiting;
    for (const bin of found.bins) total.bins.set(bin.at, summed(total.bins.get(bin.at), bin, ["at"]));
    for (const route of found.routes) {
      const known = total.routes.get(route.route) ?? { statuses: new Map(), counts: new Map() };
      addCounts(known.statuses, route.statuses);
      addCounts(known.counts, route.milliseconds.counts);
      total.routes.set(route.route, known);
    }
    for (const stage of found.stages) {
      const known = total.stages.get(stage.stage) ?? new Map();
      addCounts(known, stage.milliseconds.counts);
      total.stages.set(stage.stage, known);
    }
    for (const each of found.generators) {
      total.generators.set(each.generator, summed(total.generators.get(each.generator), each, ["generator"]));
    }
    for (const what of ["sigma", "energy"]) {
      for (const decision of ["accept", "abstain"]) addCounts(total[what][decision], found[`${what}_${decision}`].counts);
      total[what].width = found[`${what}_accept`].width;
    }
    addCounts(total.passes, found.passes);
    addCounts(total.violations, found.violations);
    if (found.writer) {
      total.writer ??= { written: 0, dropped: 0, waiting: 0, errors: [] };
      for (const name of ["written", "dropped", "waiting"]) total.writer[name] += found.writer[name];
      if (found.writer.last_error) total.writer.errors.push(found.writer.last_error);
    }
  }
  return total;
}

/** Replicas' largest numbers at once are added too: at most so many were open in all. */
function summed(known, more, keys) {
  if (!known) return { ...more };
  const found = { ...known };
  for (const [name, value] of Object.entries(more)) if (!keys.includes(name)) found[name] += value;
  return found;
}

function addCounts(into, counts) {
  for (const [name, value] of Object.entries(counts)) into.set(name, (into.get(name) ?? 0) + value);
}

export function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

/** A percentile in milliseconds of bars on a logarithmic scale; null without values. */
export function percentile(counts, share) {
  const bars = [...counts].map(([bar, value]) => [Number(bar), value]).sort((left, right) => left[0] - right[0]);
  const wanted = share * sum(counts.values());
  let seen = 0;
  for (const [bar, value] of bars) {
    seen += value;
    if (seen >= wanted) return 10 ** ((bar + 0.5) / BARS_PER_DECADE);
  }
  return null;
}

/** Every bin of a window, the empty ones too, as groups of whole bins: at most 90. */
export function timeline(bins, now, windowS, binS) {
  const width = binS * Math.ceil(windowS / binS / MAX_BINS);
  const last = Math.floor(now / width) * width;
  const starts = [];
  for (let at = last - windowS + width; at <= last; at += width) starts.push(at);
  const rows = starts.map((at) => ({ at, requests: 0, server_errors: 0, refused: 0, undecided: 0, accepted: 0, abstained: 0,
    prompt_tokens: 0, completion_tokens: 0, cost_usd: 0, running: 0, waiting: 0 }));
  for (const bin of bins.values()) {
    const row = rows[(Math.floor(bin.at / width) * width - starts[0]) / width];
    if (!row) continue;
    for (const name of Object.keys(row)) {
      if (name === "running" || name === "waiting") row[name] = Math.max(row[name], bin[name]);
      else if (name !== "at") row[name] += bin[name];
    }
  }
  return { width, rows };
}

/** Edges and counts of an even histogram, coarse enough for at most MAX_BARS bars; null without values. */
export function histogram({ accept, abstain, width }) {
  const places = [...accept.keys(), ...abstain.keys()].map(Number);
  if (places.length === 0) return null;
  const low = Math.min(...places), high = Math.max(...places);
  let factor = 1;
  for (const step of steps()) {
    factor = step;
    if (Math.floor(high / factor) - Math.floor(low / factor) < MAX_BARS) break;
  }
  const first = Math.floor(low / factor), bars = Math.floor(high / factor) - first + 1;
  const counts = (found) => {
    const values = Array(bars).fill(0);
    for (const [bar, value] of found) values[Math.floor(Number(bar) / factor) - first] += value;
    return values;
  };
  const edges = Array.from({ length: bars + 1 }, (_, place) => Number(((first + place) * factor * width).toPrecision(10)));
  return { edges, accept: counts(accept), abstain: counts(abstain) };
}

function* steps() {
  for (let power = 1; ; power *= 10) yield* [power, 2 * power, 5 * power];
}
