// The API reference: the service's own OpenAPI document, operation by operation, with curl lines that work as they stand.

import { announce, byId, el, fetchJson, fill, plural, showError } from "./base.js";
import { fieldItem, folded, prose, referenced, typeWords } from "./reference_schema.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const WIDE = "(min-width: 64rem)";
const MANY_PARAMETERS = 6;

let numIds = 0;

async function start() {
  let found;
  try {
    found = await fetchJson("openapi.json");
  } catch (error) {
    byId("about").textContent = "The OpenAPI document could not be read.";
    showError(byId("page-error"), error);
    return;
  }
  const groups = byTag(found);
  const total = [...groups.values()].flat().length;
  byId("about").textContent = `${plural(total, "operation")} of ${found.info.title} ${found.info.version}`;
  fill(byId("contents-list"), [...groups].map(contentsGroup));
  fill(byId("operations"), [...groups].map(([tag, operations]) => group(tag, operations, found)));
  byId("contents").open = window.matchMedia(WIDE).matches;
  window.addEventListener("hashchange", openTarget);
  openTarget();
}

/** Operations of each tag, both in the document's order. */
function byTag(found) {
  const groups = new Map();
  for (const [path, item] of Object.entries(found.paths))
    for (const method of METHODS.filter((name) => name in item)) {
      const operation = { ...item[method], path, method: method.toUpperCase() };
      operation.id = `${method}${path.replaceAll(/[^A-Za-z0-9]+/g, "-").replace(/-$/, "")}`;
      const tag = operation.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), operation]);
    }
  return groups;
}

/** Opens the operation that the address names, and goes there. */
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target?.classList.contains("operation")) return;
  target.open = true;
  target.scrollIntoView();
  target.querySelector("summary").focus({ preventScroll: true });
}

function contentsGroup([tag, operations]) {
  return [el("p", { class: "contents-tag" }, tag), el("ul", { class: "contents-lines" }, operations.map((operation) =>
    el("li", {}, el("a", { href: `#${operation.id}`, on: { click: () => { if (location.hash === `#${operation.id}`) openTarget(); } } },
      method(operation), pathCode(operation.path)))))];
}

function group(tag, operations, found) {
  return el("section", { class: "stack-small", "aria-labelledby": `tag-${tag}` },
    el("h2", { id: `tag-${tag}`, class: "tag" }, tag), operations.map((operation) => card(operation, found)));
}

function method({ method: name }) {
  return el("span", { class: `method method-${name.toLowerCase()}` }, name);
}

/** A path that breaks before a slash where it must break. */
function pathCode(path) {
  const parts = path.split(/(?=\/)/);
  return el("code", { class: "path" }, parts.flatMap((part, index) => (index ? [el("wbr"), part] : [part])));
}

function card(operation, found) {
  const schemas = found.components?.schemas ?? {};
  return el("details", { class: "card operation", id: operation.id },
    el("summary", {}, method(operation), el("h3", {}, pathCode(operation.path)), el("span", { class: "muted" }, operation.summary)),
    el("div", { class: "stack operation-body" },
      operation.description ? el("div", { class: "stack-small" }, prose(operation.description)) : null,
      curlPart(operation, found),
      parametersPart(operation, schemas),
      bodyPart(operation, schemas),
      answersPart(operation, schemas)));
}

function part(title, ...children) {
  return el("div", { class: "stack-small" }, el("h4", {}, title), children);
}

// ---- the request ----------------------------------------------------------------------------------------------------

function curlPart(operation, found) {
  const examples = Object.entries(operation.requestBody?.content?.["application/json"]?.examples ?? {});
  const code = el("code");
  const box = el("pre", { class: "code-block", tabindex: "0", "aria-label": `${operation.method} ${operation.path} with curl` }, code);
  const body = () => examples.find(([name]) => name === choice.value)?.[1].value;
  const choice = el("select", { id: `example-${++numIds}`, on: { change: () => show() } },
    examples.map(([name, example]) => el("option", { value: name }, example.summary ?? name)));
  const show = () => { code.textContent = curl(operation, found, body()); };
  show();
  return part("With curl",
    examples.length > 1 ? el("div", { class: "field field-inline" }, el("label", { for: choice.id }, "Example"), choice) : null,
    box,
    el("div", { class: "button-row" },
      copyButton("Copy the command", () => code.textContent, code),
      examples.length ? copyButton("Copy the body", () => JSON.stringify(body(), null, 2), code) : null));
}

/** The line for a shell; the key comes from the environment where the service asks for one. */
function curl(operation, found, body) {
  const secured = (operation.security ?? found.security ?? []).length > 0;
  const lines = [`curl '${new URL(operation.path.slice(1), document.baseURI).href.replaceAll(/%7B(.*?)%7D/gi, "{$1}")}'`];
  if (secured) lines.push('-H "Authorization: Bearer $RAYDEBM_KEY"');
  if (body !== undefined) {
    lines.push("-H 'Content-Type: application/json'");
    if (body.stream) lines.push("--no-buffer");
    lines.push(`-d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`);
  }
  return lines.join(" \\\n  ");
}

function copyButton(label, text, shown) {
  const button = el("button", { type: "button", on: { click: async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
      announce("Copied");
    } catch { // browsers give the clipboard to https and localhost only
      getSelection().selectAllChildren(shown);
      announce("Selected. Copy it with Control and C.");
      button.textContent = "Selected: copy it with Ctrl + C";
    }
    setTimeout(() => { button.textContent = label; }, 2500);
  } } }, label);
  return button;
}

function parametersPart(operation, schemas) {
  const parameters = operation.parameters ?? [];
  if (!parameters.length) return null;
  const place = common(parameters.map((found) => found.in));
  const words = parameters.length > 1 ? common(parameters.map((found) => found.description?.trim())) : undefined;
  const lines = el("ul", { class: "field-lines" }, parameters.map((found) => fieldItem(found.name, found.schema, schemas, {
    required: found.required, description: words ? "" : found.description, where: place ? null : `in the ${found.in}` })));
  const title = `Parameters${place ? ` in the ${place}` : ""}`;
  if (parameters.length <= MANY_PARAMETERS) return part(title, words ? prose(words) : null, lines);
  return part(title, words ? prose(words) : null,
    el("details", { class: "schema" }, el("summary", {}, `All ${parameters.length}`), lines));
}

/** What all of them are; undefined where they differ. */
function common(values) {
  return values.every((value) => value === values[0]) ? values[0] : undefined;
}

function bodyPart(operation, schemas) {
  const content = Object.entries(operation.requestBody?.content ?? {});
  return content.map(([media, { schema }]) => part("Body", el("p", { class: "muted small" }, media), valueOf(schema, schemas, { open: true })));
}

/** A body's schema: its fields, or its type where it has none. */
function valueOf(schema, schemas, options) {
  const name = schema && referenced(schema);
  if (name) return folded(name, schemas, options);
  return schema && Object.keys(schema).length ? el("p", {}, typeWords(schema)) : null;
}

// ---- the answers ----------------------------------------------------------------------------------------------------

function answersPart(operation, schemas) {
  const answers = Object.entries(operation.responses);
  const good = answers.filter(([status]) => status.startsWith("2"));
  const bad = answers.filter(([status]) => !status.startsWith("2")).sort(([one], [other]) => one.localeCompare(other));
  return part("Answers",
    good.map(([status, answer]) => Object.entries(answer.content ?? {}).map(([media, { schema }]) => el("div", {},
      el("p", {}, el("strong", {}, status), " ", el("span", { class: "muted small" }, media)), valueOf(schema, schemas, { answer: true })))),
    bad.length ? el("details", { class: "schema" }, el("summary", {}, plural(bad.length, "error")),
      el("dl", { class: "errors" }, bad.map(([status, answer]) => [el("dt", {}, status), el("dd", {}, prose(answer.description))])),
      errorBodies(bad).map((name) => folded(name, schemas, { answer: true }))) : null);
}

function errorBodies(answers) {
  const names = answers.map(([, answer]) => referenced(answer.content?.["application/json"]?.schema ?? {}));
  return [...new Set(names.filter(Boolean))];
}

start();
