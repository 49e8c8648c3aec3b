// What every page needs: elements from data, calls with the key, errors in words, numbers and times.
//
// Texts of models and users reach the document as text nodes only. `el` has no way to set markup.

const KEY_NAME = "raydebm-api-key";

// ---- elements -------------------------------------------------------------------------------------------------------

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "indeterminate"]);
const BANNED = /^(on.*|style|srcdoc)$/i;

/** An HTML element. `props`: `class`, `dataset`, `on: {click: …}`, properties such as `value`, `checked`, `disabled`,
 *  or attributes; null, undefined and false leave one out. Children: nodes, texts, numbers, arrays; null is nothing. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);

  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (PROPERTIES.has(name)) node[name] = value;
    else if (BANNED.test(name)) throw new Error(`el: attribute ${name} is not set this way`);
    else if (value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...flat(children));
  return node;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/** Put other children into a node. */
export function fill(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

/** The element of that id, which the page's template has. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return found;
}

/** Say a sentence to screen readers, without moving the focus. */
export function announce(text) {
  byId("announcer").textContent = text;
}

// ---- numbers and times ----------------------------------------------------------------------------------------------

const MINUS = "\u2212";
export const NONE = "\u2013";

/** A number with a fixed count of digits after the point; a dash when there is none. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", MINUS);
}

/** A count with thousands marked. */
export function count(value) {
  return value === null || value === undefined ? NONE : value.toLocaleString("en-US");
}

/** A duration given in milliseconds, in words. */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return NONE;
  if (Math.round(ms) < 1000) return `${Math.round(ms)} ms`;
  if (Math.round(ms / 10) < 1000) return `${(ms / 1000).toFixed(2)} s`;
  if (Math.round(ms / 100) < 600) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000); // rounded before it is split, or the rest could be 60 s
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** US dollars; small amounts keep their digits. */
export function money(usd) {
  if (usd === null || usd === undefined || !Number.isFinite(usd)) return NONE;
  if (usd === 0) return "$0";
  return usd >= 1 ? `$${usd.toFixed(2)}` : `$${Number(usd.toPrecision(2))}`;
}

/** A `<time>` of an ISO text: the reader's own zone, the exact instant as its attribute. */
export function time(iso) {
  const found = new Date(iso);
  if (Number.isNaN(found.getTime())) return el("span", {}, String(iso));
  const words = found.toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "medium" });
  const [day, ...clock] = words.split(" ").map((part) => el("span", { class: "number" }, part)); // breaks between them only
  return el("time", { datetime: found.toISOString(), title: found.toISOString() }, day, clock.map((part) => [" ", part]));
}

/** "1 candidate", "2 candidates". */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

// ---- badges ---------------------------------------------------------------------------------------------------------

const DECISIONS = {
  accept: ["\u2713", "accept"],
  abstain: ["\u25A0", "abstain"],
  regenerate: ["\u21BB", "regenerate"],
};

/** A decision in a word, with a sign of its own, so that it does not rest on colour. */
export function decisionBadge(decision) {
  const [sign, word] = DECISIONS[decision] ?? ["", String(decision)];
  const known = decision in DECISIONS ? ` badge-${decision}` : " badge-plain";
  return el("span", { class: `badge${known}` }, el("span", { "aria-hidden": "true" }, sign), word);
}

const OUTCOMES = { right: ["\u2713", "accept"], wrong: ["\u2717", "violation"] };

/** What was reported about a decision, in a word with a sign of its own; a dash where nothing was. */
export function outcomeBadge(outcome) {
  if (!(outcome in OUTCOMES)) return NONE;
  const [sign, kind] = OUTCOMES[outcome];
  return el("span", { class: `badge badge-${kind}` }, el("span", { "aria-hidden": "true" }, sign), outcome);
}

// ---- the service ----------------------------------------------------------------------------------------------------

/** What the service refused or could not do, with its own words. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = null, param = null, requestId = null } = {}) {
    super(message);
    Object.assign(this, { name: "ApiError", status, code, param, requestId });
  }
}

const memory = {}; // where storage is switched off, a text lasts until the page is left

/** A text that this tab keeps; "" without one. */
export function storedText(name) {
  try { return sessionStorage.getItem(name) ?? ""; } catch { return memory[name] ?? ""; }
}

export function keepText(name, text) {
  memory[name] = text;
  try { sessionStorage.setItem(name, text); } catch { /* see memory */ }
}

/** Fetch, with the key where there is one; asks for a key when the service wants one, and tries again.
 *  `path` is relative ("v1/triage"). Throws ApiError for every answer that is not 2xx, and when nothing answers. */
export async function request(path, { method, body, signal, accept = "application/json" } = {}) {
  for (;;) {
    const key = storedText(KEY_NAME);
    const headers = { Accept: accept };
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let reply;
    try {
      reply = await fetch(path, {
        method: method ?? (body === undefined ? "GET" : "POST"),
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: "no-store",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The service could not be reached. Is it still running?", { code: "unreachable" });
    }
    if (reply.ok) return reply;
    const error = await apiError(reply);
    if (reply.status !== 401) throw error;
    if (storedText(KEY_NAME) !== key) continue; // another call has asked meanwhile
    if (!(await askForKey(key ? "The service refused this key. Is it complete?" : undefined))) throw error;
  }
}

/** The JSON of an answer (see `request`). */
export async function fetchJson(path, options = {}) {
  return (await request(path, options)).json();
}

async function apiError(reply) {
  const requestId = reply.headers.get("X-Request-ID");
  let found = null;
  try { found = (await reply.json()).error; } catch { /* not ours: a proxy's page */ }
  const words = found?.message ?? `The service answered with status ${reply.status}.`;
  return new ApiError(words, { status: reply.status, code: found?.code, param: found?.param, requestId });
}

/** POST and hand on server-sent events as `onEvent({event, data, comment})` in their order; `data` is the text. Resolves
 *  when the stream ends. */
export async function streamEvents(path, body, { signal, onEvent }) {
  const reply = await request(path, { body, signal, accept: "text/event-stream" });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) onEvent(readEvent(block));
    if (done) break;
  }
  if (rest.trim()) onEvent(readEvent(rest));
}

function readEvent(block) {
  const found = { event: "message", data: "", comment: "" };
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") found.event = value;
    else if (name === "data") data.push(value);
    else if (name === "") found.comment = value;
  }
  found.data = data.join("\n");
  return found;
}

/** Show an error where it belongs; the notice is announced. `null` takes it away. */
export function showError(container, error) {
  if (!error) return fill(container);
  const facts = [error.code, error.param ? `field ${error.param}` : null,
    error.requestId ? `request ${error.requestId}` : null].filter(Boolean).join(" · ");
  return fill(container, el("div", { class: "notice notice-error", role: "alert" },
    el("p", {}, el("strong", {}, "That did not work. "), error.message),
    facts ? el("p", { class: "small muted" }, facts) : null));
}

// ---- the key --------------------------------------------------------------------------------------------------------

let asking = null;

/** Ask for a key; true when one was given. Calls that come meanwhile wait for the same dialog. */
export function askForKey(message) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    const input = byId("key-input");
    if (message) byId("key-message").textContent = message;
    input.value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      const key = input.value.trim();
      input.value = "";
      const given = dialog.returnValue === "use" && key !== "";
      if (given) storeKey(key);
      asking = null;
      resolve(given);
    }, { once: true });
    dialog.showModal();
    input.focus();
  });
  return asking;
}

function storeKey(key) {
  keepText(KEY_NAME, key);
  showKeyButton();
}

function showKeyButton() {
  byId("key-button").hidden = !storedText(KEY_NAME);
}

byId("key-button").addEventListener("click", () => askForKey("Give another key, or forget the one this tab keeps."));
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close("cancel"));
byId("key-forget").addEventListener("click", () => {
  storeKey("");
  byId("key-dialog").close("forget");
});
showKeyButton();
