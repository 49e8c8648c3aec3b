"""Starter task of `raydebm task new`: works offline, with comments on what to change.

The example: answer a shop's customer, and state the refund. Its answers are recorded, from two writers.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from raydebm.errors import ConfigError, TaskDataError
from raydebm.tasks.declared.definition import NAME
from raydebm.tasks.sources import file_rows

_INSTRUCTIONS = (
    "You answer customers of a shop. Refund what the customer paid for the faulty part, and never more than they paid.",
    "End with one JSON object and write nothing after it:",
    '{"reply": "text for the customer", "refund": 12.5, "articles": ["returns"]}',
    "articles: help pages to link, of returns, delivery, warranty; none twice.",
)
_PROMPT = ("Message: {message}", "Paid: {paid}")

_TASK = """\
# A task for raydebm: what is asked, how answers look, which rules they must keep.
#   raydebm task validate {folder}/task.yaml --answers {folder}/answers.jsonl
#   raydebm run --config {folder}/recipe.yaml
# All rules and settings: docs/constraints.md, docs/tutorials/a_task.md.

name: {name}
description: Answers to customers of a shop, with a refund.

# The system message, word for word.
instructions: |
{instructions}

# The user message; {{field}} is a column of the data.
prompt: |
{prompt}

# How to find the answer in a completion: json, number, choice or text.
output:
  format: json
  schema:                       # faults are violations, with feedback; not a reason to drop the answer
    type: object
    required: [reply, refund, articles]
    properties:
      reply: {{type: string}}
      refund: {{type: number}}
      articles: {{type: array, items: {{type: string}}}}

# Checks without gold. Paths start at answer (what was parsed) or problem (the declared columns).
constraints:
  - name: refund
    rule: compare
    value: answer.refund
    at_least: 0
    at_most: problem.paid
    weight: 2.0
    message: "the refund is {{value:,.2f}}; it must be {{bound}} {{limit:,.2f}}"
  - name: short
    rule: compare
    value: words(answer.reply)
    at_most: 40
    message: "the reply has {{value}} words, {{excess:d}} more than {{limit}}"
  - name: polite
    rule: matches
    value: answer.reply
    pattern: '(?i)\\b(sorry|thank)'
    message: "the reply neither thanks nor apologises"
  - name: known articles
    rule: member
    value: answer.articles
    table: [returns, delivery, warranty]
  - name: articles once
    rule: unique
    value: answer.articles

# Two answers with the same value are the same answer when votes are counted.
vote: answer.refund

# Optional. The column is taken out of every row before prompts and checks see it.
gold:
  field: expected_refund
  value: answer.refund
  match: number                 # exact, number, set, json
  tolerance: 0.005

# Without gold, training can learn from the constraints alone:  labels: constraints

data:                           # beside this file
  train: train.jsonl
  test: test.jsonl
  id: id                        # the rows' own names, by which recorded answers are joined
  difficulty: kind              # reports break results down by it

defaults: {{max_length: 512, max_tokens: 512, lambda: 1.0}}
"""

_OWN_TASK = """\
# A task for raydebm: what is asked, how answers look, which rules they must keep.
#   raydebm task validate {folder}/task.yaml
# All rules and settings: docs/constraints.md, docs/task_file.md, docs/tutorials/a_task.md.

name: {name}

# The system message, word for word: what to do, and how to write the answer.
instructions: |
  Answer the question. End with a line that holds four hash signs and the answer alone: #### 42

# The user message; {{field}} is a column of the data.
prompt: |
{prompt}

# How to find the answer in a completion: json (with a schema), number, choice (with choices) or text.
output: {{format: number}}

# Checks without gold, such as:
# constraints:
#   - {{name: positive, rule: compare, value: answer, at_least: 0}}

# Which answers are right. The column is taken out of every row before prompts and checks see it.
# gold: {{field: COLUMN, match: number}}

data:
  train: {data}
  test: {data}
"""

_RECIPE = """\
# A whole run on recorded answers: no key, no GPU. Paths count from the working directory.
#   raydebm run --config {folder}/recipe.yaml
#   raydebm serve --run-dir runs/{name}

name: {name}

task: {{name: {task}}}

generators:
  - {{kind: recorded, name: careful, model: careful, pool: {pool}}}
  - {{kind: recorded, name: hasty, model: hasty, pool: {pool}}}
  # A model behind any OpenAI-compatible endpoint:
  # - {{kind: openai, name: llm, model: qwen/qwen-2.5-7b-instruct, api_key_env: OPENROUTER_API_KEY}}

generation: {{num_samples: 2, greedy: false}}

pairs: {{validation_frac: 0.25}}

scorer: {{backbone: "embedded:encoder-mini", max_length: 512}}

training: {{learning_rate: 1.0e-3, batch_size: 8, max_epochs: 2}}

evaluation: {{num_bootstrap: 200}}

ray: {{num_cpus: 8, object_store_mb: 256}}
"""

_CASES = (
    # kind, message, paid, expected refund, article
    ("broken", "The lamp (24.50) came with a broken switch, the bulbs are fine.", 31.0, 24.5, "returns"),
    ("late", "My parcel is a week late. I still want it.", 18.0, 0, "delivery"),
    ("missing", "Two of the four chairs are missing. Each was 45.", 180.0, 90, "delivery"),
    ("broken", "Both mugs at 8.20 each arrived in pieces.", 16.4, 16.4, "returns"),
    ("question", "How long is the warranty of the kettle?", 39.9, 0, "warranty"),
    ("missing", "The charger (12.00) was not in the box with the drill.", 99.0, 12, "delivery"),
    ("broken", "The zip of the 60.00 bag broke on the first day.", 75.0, 60, "warranty"),
    ("late", "It is late again, please cancel the whole order.", 42.5, 42.5, "delivery"),
    ("missing", "One of three books is missing, they cost 11 each.", 33.0, 11, "delivery"),
    ("broken", "The screen has a crack. Only the screen, 130.00, please.", 210.0, 130, "warranty"),
    ("question", "Can I return the shoes if they do not fit?", 58.0, 0, "returns"),
    ("broken", "The vase (19.95) is chipped, the flowers (10.00) are lovely.", 29.95, 19.95, "returns"),
)
_NUM_TRAIN = 8


def starter_files(name: str, folder: str) -> dict[str, str]:
    """File contents by name.

    Args:
        name: name of the new task.
        folder: folder of the files, as written in the recipe.

    Raises:
        ConfigError: not a valid task name.
    """
    _check_name(name)
    instructions, prompt = "\n".join(_INSTRUCTIONS), "\n".join(_PROMPT)
    return {
        "task.yaml": _TASK.format(
            name=name, folder=folder, instructions=_indented(instructions), prompt=_indented(prompt)
        ),
        "recipe.yaml": _RECIPE.format(
            name=name, folder=folder, task=json.dumps(f"{folder}/task.yaml"), pool=json.dumps(f"{folder}/answers.jsonl")
        ),
        "train.jsonl": _lines(_problems(0, _NUM_TRAIN)),
        "test.jsonl": _lines(_problems(_NUM_TRAIN, len(_CASES))),
        "answers.jsonl": _lines(row for index in range(len(_CASES)) for row in _answers(index)),
    }


def task_file_for(name: str, folder: str, data: Path) -> str:
    """A task file for a user's data file, whose prompt names all its columns.

    Raises:
        ConfigError: not a valid task name.
        TaskDataError: the file cannot be read, or has no row.
    """
    _check_name(name)
    row = next((row for _, row in file_rows(data)), None)
    if not row:
        raise TaskDataError(f"file {str(data)!r} has no rows")
    prompt = "\n".join(f"{column}: {{{column}}}" for column in row)
    return _OWN_TASK.format(name=name, folder=folder, prompt=_indented(prompt), data=json.dumps(str(data.resolve())))


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(f"task name {name!r} must be small letters, digits and _, such as support_reply")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _lines(rows: Iterator[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _problems(first: int, end: int) -> Iterator[dict[str, Any]]:
    for index in range(first, end):
        kind, message, paid, refund, _ = _CASES[index]
        yield {"id": f"r{index:02}", "kind": kind, "message": message, "paid": paid, "expected_refund": refund}


def _answers(index: int) -> Iterator[dict[str, Any]]:
    """Two answers of each writer. The careful one errs in a third of the second answers, the hasty one breaks rules."""
    _, _, paid, refund, article = _CASES[index]
    slip = paid if index % 3 == 0 and refund != paid else refund
    calm = "Thank you for writing. We are sorry, and have sent the amount back to you."
    for sample, amount in enumerate((refund, slip)):
        answer = {"reply": calm, "refund": amount, "articles": [article]}
        text = f"They paid {paid}; {amount} of it is due.\n{json.dumps(answer)}"
        yield {"problem_id": f"r{index:02}", "model": "careful", "sample": sample, "text": text}
    hasty = (
        json.dumps({"reply": "Done.", "refund": paid + 10, "articles": [article, article]}),
        json.dumps({"reply": "Sorry!", "refund": refund if index % 2 else paid / 4, "articles": ["help"]})
        if index % 4
        else "I will look into it.",
    )
    for sample, text in enumerate(hasty):
        yield {"problem_id": f"r{index:02}", "model": "hasty", "sample": sample, "text": text}
