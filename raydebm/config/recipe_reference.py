"""Every key of a recipe with its type, default and meaning, as Markdown (``raydebm reference``).

``docs/recipe.md`` is this module's output; a test compares them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from raydebm.config.recipe import Recipe

_HEAD = """# Recipes

A recipe is a YAML file that describes a run completely (`configs/` has examples). Only `name`, `task.name` and one
generator must be given. Unknown keys are refused. `${VAR}` and `${VAR:-default}` are read from the environment. Any key
can be set on the command line (`raydebm run --config recipe.yaml generation.num_samples=4`); `raydebm validate` shows a
recipe with its defaults, where null means the default of the task ([tasks.md](tasks.md)) or the one described below.
API keys are never part of a recipe: `api_key_env` names the environment variable. If one recipe serves several tasks
(`--task`), `by_task: {<task>: {<section>: {<key>: <value>}}}` has the values that differ for a task; the command line
takes precedence over it.

This page is the output of `raydebm reference`.
"""

Schema = Mapping[str, Any]


def render() -> str:
    """Render the reference page of recipes."""
    return page(Recipe.model_json_schema(by_alias=True), head=_HEAD, title="The recipe")


def page(schema: Schema, *, head: str, title: str) -> str:
    """Render a table of the top level, then one per section, in the order in which they are referenced."""
    definitions: Mapping[str, Schema] = schema["$defs"]
    parts: list[str] = [head, f"## {title}\n", _table(schema)]
    for name in _reachable(schema, definitions):
        definition = definitions[name]
        parts += [f"## {_title(name)}\n"]
        if definition.get("description"):
            parts += [_joined(definition["description"]) + "\n"]
        parts += [_table(definition)]
    return "\n".join(parts)


def _reachable(schema: Schema, definitions: Mapping[str, Schema]) -> list[str]:
    names: dict[str, None] = {}
    for field in schema["properties"].values():
        for name in _references(field):
            if name not in names:
                names[name] = None
                names |= dict.fromkeys(_reachable(definitions[name], definitions))
    return list(names)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for key, inner in value.items():
            if key != "discriminator":
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _title(name: str) -> str:
    """The section's heading: ``PairsConfig`` becomes ``Pairs``, ``OpenAIGenerator`` stays."""
    return name.removesuffix("Config")


def _table(schema: Schema) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    required = schema.get("required", ())
    for key, field in schema["properties"].items():
        default = "required" if key in required else _value(field.get("default"))
        meaning = _joined(field.get("description", "")) or "-"
        rows.append(f"| `{key}` | {_type(field)} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def _type(field: Schema) -> str:
    if "$ref" in field:
        title = _title(field["$ref"].rpartition("/")[2])
        return f"[{title}](#{title.lower()})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    for union in ("anyOf", "oneOf"):
        if union in field:
            return " or ".join(dict.fromkeys(_type(inner) for inner in field[union]))
    if field.get("type") == "array":
        inner = field.get("prefixItems") or [field.get("items", {})]
        return f"list of {' and '.join(dict.fromkeys(_type(element) for element in inner))}"
    kind = str(field.get("type", "any"))
    return {"null": "none", "object": "mapping"}.get(kind, kind) + _bounds(field)


def _bounds(field: Schema) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {field[name]:g}" for name, sign in signs.items() if name in field]
    return f" ({', '.join(bounds)})" if bounds else ""


def _value(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, Mapping):
        return "see its section" if default else "`{}`"
    text = json.dumps(default, ensure_ascii=False)
    return "see the code" if len(text) > 60 else f"`{text}`"


def _joined(text: str) -> str:
    """Join into one line of a Markdown table: code spans converted, bars escaped."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
