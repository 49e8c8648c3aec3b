// What one request has done so far, from its events. No document here: state in, state out.

/** A request that has just been sent. */
export function newRun(startedAt) {
  return { phase: "running", startedAt, endedAt: null, start: null, passes: [], candidates: new Map(), result: null,
    error: null };
}

/** Take in one progress event (docs/service.md lists them). Unknown events change nothing. */
export function takeIn(run, event) {
  if (event.event === "start") run.start = event;
  else if (event.event === "pass") {
    run.passes.push({ index: event.pass, requested: event.requested, generators: event.generators ?? {},
      overBudget: event.over_budget ?? {}, told: event.feedback ?? null, decision: null, reason: null });
  } else if (event.event === "candidate") {
    const known = run.candidates.get(event.candidate_id);
    run.candidates.set(event.candidate_id, { id: event.candidate_id, generator: event.generator, pass: event.pass,
      sample: event.sample_index, text: event.text ?? null, failed: event.failed, error: event.error ?? null,
      late: Boolean(event.late), body: known?.body ?? null });
  } else if (event.event === "scored") {
    const body = event.candidate;
    const known = run.candidates.get(body.candidate_id);
    run.candidates.set(body.candidate_id, { ...(known ?? fromBody(body)), text: body.text ?? known?.text ?? null,
      body });
  } else if (event.event === "decision") {
    const pass = run.passes.find((found) => found.index === event.pass_index);
    if (pass) Object.assign(pass, { decision: event, reason: event.reason ?? null });
  }
  return run;
}

/** Take in the full record: from now on it alone is shown. */
export function finish(run, result, endedAt) {
  run.phase = "done";
  run.endedAt = endedAt;
  run.result = result;
  for (const body of result.candidates ?? []) {
    const known = run.candidates.get(body.candidate_id);
    run.candidates.set(body.candidate_id, { ...fromBody(body), late: known?.late ?? false, body });
  }
  for (const record of result.passes) {
    let pass = run.passes.find((found) => found.index === record.pass_index);
    if (!pass) {
      pass = { index: record.pass_index, requested: record.num_requested, generators: {}, overBudget: {}, told: null,
        reason: null };
      run.passes.push(pass);
    }
    pass.decision = { ...record };
  }
  return run;
}

function fromBody(body) {
  return { id: body.candidate_id, generator: body.generator, pass: body.pass_index, sample: body.sample_index,
    text: body.text, failed: body.text === null, error: body.error, late: false, body: null };
}

/** Best first: by energy, then mu, then pass, then id, as the service selects; then what has no energy. */
export function ranked(run) {
  return [...run.candidates.values()].sort((a, b) => {
    const left = a.body?.energy ?? null;
    const right = b.body?.energy ?? null;
    if (left === null || right === null) return (left === null) - (right === null) || group(a) - group(b) || byPlace(a, b);
    return left - right || a.body.mu - b.body.mu || a.pass - b.pass || (a.id < b.id ? -1 : Number(a.id > b.id));
  });
}

function group(candidate) {
  if (candidate.failed) return 2;
  return candidate.body ? 1 : 0;
}

function byPlace(a, b) {
  return a.pass - b.pass || compare(a.generator, b.generator) || a.sample - b.sample || compare(a.id, b.id);
}

function compare(a, b) {
  return a < b ? -1 : Number(a > b);
}

/** Id of the selected candidate: what the last decided pass or the record names, else null. */
export function selectedId(run) {
  if (run.result) return run.result.candidate?.candidate_id ?? null;
  const decided = run.passes.filter((pass) => pass.decision);
  return decided.length ? decided[decided.length - 1].decision.selected : null;
}

/** The energy axis that fits every candidate, and that of sigma: `{energy: [low, high], sigma: [0, high]}`. */
export function scales(run, policy) {
  const energies = [], sigmas = [];
  for (const { body } of run.candidates.values()) {
    if (body?.mu === null || body?.mu === undefined) continue;
    energies.push(body.mu - body.sigma, body.mu + body.sigma, ...body.members);
    if (body.energy !== null) energies.push(body.energy);
    sigmas.push(body.sigma);
  }
  const low = Math.min(...energies), high = Math.max(...energies);
  const pad = energies.length ? Math.max((high - low) * 0.04, 0.05) : 1;
  const widest = Math.max(0, ...sigmas);
  // A threshold far beyond every sigma would press them all to nothing; then it stands outside, and a text says so.
  const near = [policy?.theta_sigma, policy?.theta_abstain].filter((theta) => theta > 0 && theta <= Math.max(4 * widest, 0.1));
  return {
    energy: energies.length ? [low - pad, high + pad] : [-1, 1],
    sigma: [0, (Math.max(widest, ...near) || 1) * 1.08],
  };
}

/** At most `most` round numbers inside [low, high]. */
export function ticks([low, high], most = 5) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((found) => found >= rough);
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high + step * 1e-9; index += 1) found.push(index * step);
  return { values: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}
