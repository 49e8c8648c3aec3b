// JSON schemas of the OpenAPI document for people: a type in words, its limits, its fields.

import { el, fill } from "./base.js";

const PREFIX = "#/components/schemas/";

/** The name of the schema that a reference leads to; null for any other schema. */
export function referenced(schema) {
  return schema.$ref?.startsWith(PREFIX) ? schema.$ref.slice(PREFIX.length) : null;
}

/** What a value is: "integer or null", "list of text or Document". */
export function typeWords(schema) {
  const name = referenced(schema);
  if (name) return name;
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.map(typeWords).join(" or ");
  if (schema.type === "array") return `list of ${schema.items ? typeWords(schema.items) : "anything"}`;
  if (schema.type === "object") {
    const values = schema.additionalProperties;
    return values && typeof values === "object" && Object.keys(values).length ? `object of ${typeWords(values)}` : "object";
  }
  return schema.type ?? "anything";
}

/** What a value must keep: ["one of accept, abstain", "at most 8"]; those of a list's items and of each way as well. */
export function limitWords(schema) {
  const said = [];
  if (schema.enum) said.push(`one of ${schema.enum.join(", ")}`);
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  if (minimum !== undefined && maximum !== undefined) said.push(`${digits(minimum)} to ${digits(maximum)}`);
  else if (minimum !== undefined) said.push(`at least ${digits(minimum)}`);
  else if (maximum !== undefined) said.push(`at most ${digits(maximum)}`);
  if (exclusiveMinimum !== undefined) said.push(`above ${digits(exclusiveMinimum)}`);
  if (exclusiveMaximum !== undefined) said.push(`below ${digits(exclusiveMaximum)}`);
  said.push(...sizes(schema.minLength, schema.maxLength, "characters"), ...sizes(schema.minItems, schema.maxItems, "items"));
  if (schema.format) said.push(schema.format);
  if (schema.pattern) said.push(`matches ${schema.pattern}`);
  for (const part of [...(schema.anyOf ?? []), ...(schema.items ? [schema.items] : [])]) said.push(...limitWords(part));
  return [...new Set(said)];
}

function digits(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 20 });
}

function sizes(least, most, unit) {
  if (least === undefined && most === undefined) return [];
  if (most === undefined) return least > 1 ? [`at least ${least} ${unit}`] : ["not empty"];
  return [least ? `${least} to ${most} ${unit}` : `at most ${most} ${unit}`];
}

/** Names of the schemas with fields of their own that a field's value may be. */
function inner(schema) {
  const name = referenced(schema);
  if (name) return [name];
  const parts = [...(schema.anyOf ?? []), schema.items, schema.additionalProperties];
  return [...new Set(parts.filter((part) => part && typeof part === "object").flatMap(inner))];
}

/** Paragraphs of a description; what stands between backticks is code. */
export function prose(text) {
  return text.trim().split(/\n\s*\n/).map((paragraph) => el("p", {}, paragraph.split(/(`+[^`]+`+)/).map((part) =>
    part.startsWith("`") ? el("code", {}, part.replaceAll("`", "")) : part.replaceAll(/\s+/g, " "))));
}

/** One field or parameter as a list item: its name, type, limits, and the fields of what it holds, folded in.
 *  `answer`: the service writes it, so that nobody needs to know what is required. */
export function fieldItem(name, schema, schemas, { required = false, description, where, answer = false } = {}) {
  const limits = limitWords(schema);
  if (schema.default !== undefined && schema.default !== null && !("const" in schema))
    limits.push(`${JSON.stringify(schema.default)} when left out`);
  const said = description ?? schema.description;
  return el("li", { class: "field-line" },
    el("p", {}, el("code", { class: "field-name" }, name), " ",
      el("span", { class: "muted" }, [typeWords(schema), where].filter(Boolean).join(", ")),
      required && !answer ? el("strong", { class: "needed" }, " required") : null),
    limits.length ? el("p", { class: "muted small break" }, limits.join("; ")) : null,
    said?.trim() ? prose(said) : null,
    inner(schema).map((found) => folded(found, schemas, { answer })));
}

/** The fields of one schema of the document, in its own order. */
function fieldList(schema, schemas, answer) {
  const fields = Object.entries(schema.properties ?? {});
  if (!fields.length) return el("p", { class: "muted" }, schema.enum ? limitWords(schema).join("; ") : "Any fields.");
  return el("ul", { class: "field-lines" }, fields.map(([name, field]) =>
    fieldItem(name, field, schemas, { required: (schema.required ?? []).includes(name), answer })));
}

/** A schema by its name, built when it is opened: schemas may hold each other. */
export function folded(name, schemas, { open = false, answer = false } = {}) {
  const box = el("div", { class: "schema-body" });
  const details = el("details", { class: "schema" }, el("summary", {}, "Fields of ", el("code", {}, name)), box);
  const show = () => {
    const schema = schemas[name];
    if (!box.hasChildNodes() && schema)
      fill(box, schema.description ? prose(schema.description) : null, fieldList(schema, schemas, answer));
  };
  details.addEventListener("toggle", () => { if (details.open) show(); });
  if (open) show();
  details.open = open;
  return details;
}
