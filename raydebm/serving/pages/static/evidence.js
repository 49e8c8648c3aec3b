// Where a candidate's text shows what a violation is about, and what changed between two texts. No document here.
//
// A violation says in words what is wrong. Its evidence is whatever those words share with the candidate: a quoted
// passage, a key or a value of its answer. Nothing is guessed: a violation whose words share nothing is left unmarked.

const QUOTED = /"([^"\n]{2,300})"|\u201C([^\u201D\n]{2,300})\u201D|'([^'\n]{2,300})'/g;
const NUMBER = /(?<![\w.])-?\d+(?:[.,]\d+)*(?![\w])/g;

/** Spans `{start, end, violations: [index, …]}` of `text`, in order and without overlap.
 *
 *  text: the candidate's. answer: its parsed answer in canonical text, or null. violations: `[{message}, …]`. */
export function evidenceSpans(text, answer, violations) {
  const spans = [];
  const leaves = leavesOf(answer);
  violations.forEach((violation, index) => {
    for (const [start, end] of placesOf(text, leaves, violation.message)) spans.push({ start, end, index });
  });
  return merged(spans);
}

/** Keys and values of an answer that is JSON: `{keys: Set, values: Set}`; empty ones where it is not. */
function leavesOf(answer) {
  const found = { keys: new Set(), values: new Set() };
  const walk = (value) => {
    if (Array.isArray(value)) value.forEach(walk);
    else if (value !== null && typeof value === "object") {
      for (const [key, inner] of Object.entries(value)) { found.keys.add(key); walk(inner); }
    } else if (typeof value === "string" || typeof value === "number") found.values.add(String(value));
  };
  try { walk(JSON.parse(answer)); } catch { if (answer) found.values.add(answer.trim()); }
  return found;
}

function placesOf(text, leaves, message) {
  const quoted = [...message.matchAll(QUOTED)].map((match) => match[1] ?? match[2] ?? match[3]);
  const places = [];
  for (const passage of quoted) places.push(...occurrences(text, passage));
  const pairs = [...leaves.keys].filter((key) => key.length > 1 && hasWord(message, key)).flatMap((key) => pairsOf(text, key));
  places.push(...pairs);
  if (pairs.length) return places; // its values stand in them, and elsewhere they may mean something else
  const numbers = new Set(message.match(NUMBER) ?? []);
  for (const value of leaves.values) {
    const isNumber = numbers.has(value);
    if (!isNumber && (value.length < 3 || !hasWord(message, value))) continue;
    // A single digit stands in every text; it counts as the value of the answer, which comes last.
    const found = occurrences(text, value);
    places.push(...(isNumber ? found.slice(-1) : found.filter(([start, end]) => !places.some(([a, b]) => a <= start && end <= b)).slice(-3)));
  }
  return places;
}

/** `"key": value` as JSON has it; the last ones count, for an answer stands at the end. */
function pairsOf(text, key) {
  const pair = new RegExp(`"${escaped(key)}"\\s*:\\s*(?:"(?:[^"\\\\\\n]|\\\\.)*"|[^\\s,{}\\[\\]]+)`, "gu");
  const found = [...text.matchAll(pair)].map((match) => [match.index, match.index + match[0].length]);
  return found.slice(-8);
}

function occurrences(text, passage) {
  const pattern = new RegExp(`${edge(passage, 0)}${escaped(passage)}${edge(passage, -1)}`, "giu");
  return [...text.matchAll(pattern)].slice(0, 20).map((match) => [match.index, match.index + match[0].length]);
}

function hasWord(message, word) {
  return new RegExp(`${edge(word, 0)}${escaped(word)}${edge(word, -1)}`, "u").test(message);
}

/** No letter or digit may go on where the passage ends in one. */
function edge(passage, at) {
  if (!/[\p{L}\p{N}]/u.test(passage.at(at))) return "";
  return at === 0 ? "(?<![\\p{L}\\p{N}])" : "(?![\\p{L}\\p{N}])";
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}

/** Overlapping spans become one that names all their violations. */
function merged(spans) {
  const found = [];
  for (const span of spans.sort((a, b) => a.start - b.start || b.end - a.end)) {
    const last = found[found.length - 1];
    if (last && span.start < last.end) {
      last.end = Math.max(last.end, span.end);
      last.violations.add(span.index);
    } else found.push({ start: span.start, end: span.end, violations: new Set([span.index]) });
  }
  return found.map((span) => ({ ...span, violations: [...span.violations].sort((a, b) => a - b) }));
}

const MOST_WORDS = 1500;

/** The words of two texts as `[{kind: "same" | "gone" | "new", text}, …]`; null where they are too long to compare. */
export function wordDiff(before, after) {
  const a = before.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  const b = after.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  if (a.length > MOST_WORDS || b.length > MOST_WORDS) return null;
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1
        : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const parts = [];
  const put = (kind, text) => {
    const last = parts[parts.length - 1];
    if (last?.kind === kind) last.text += text; else parts.push({ kind, text });
  };
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { put("same", a[i]); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) { put("gone", a[i]); i += 1; }
    else { put("new", b[j]); j += 1; }
  }
  return parts;
}
