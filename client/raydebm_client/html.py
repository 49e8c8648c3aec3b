"""Tables for notebooks. Whatever a model or a user wrote is escaped; no script, no outside file."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Protocol

MAX_ROWS = 64
MAX_CHARS = 240
BAR_WIDTH = 160
"""Pixels."""


class Scored(Protocol):
    """What a bar is drawn of."""

    @property
    def mu(self) -> float | None: ...
    @property
    def sigma(self) -> float | None: ...


def triage_table(triaged: Any) -> str:
    """A decision (``results.TriageResult``): the head, and the candidates by energy when they are there."""
    sign = "✓ accept" if triaged.decision == "accept" else "∅ abstain"
    shown = triaged.answer if triaged.answer is not None else "no answer is given"
    head = (
        f"<p><strong>{escape(sign)}</strong> · {escape(triaged.task)} · {escape(_cut(shown))}<br>"
        f"<small>{escape(_cut(triaged.reason))}</small></p>"
    )
    pool = triaged.candidates if triaged.candidates is not None else [triaged.candidate] if triaged.candidate else []
    if not pool:
        return f"<div>{head}</div>"
    best = None if triaged.candidate is None else triaged.candidate.candidate_id
    ranked = sorted(pool, key=lambda one: (one.energy is None, one.energy or 0.0))
    scale = _scale(ranked)
    rows = [
        [
            "★" if one.candidate_id == best else "",
            escape(one.generator),
            str(int(one.pass_index)),
            _text(one.answer if one.answer is not None else one.error),
            _bar(one, scale),
            _number(one.penalty, "∞"),
            _list(violation.get("message", "") for violation in one.violations),
        ]
        for one in ranked[:MAX_ROWS]
    ]
    names = ("", "generator", "pass", "answer", "energy mu ± sigma", "penalty", "violations")
    return f"<div>{head}{_table(names, rows, len(ranked))}</div>"


def score_table(items: Sequence[Any]) -> str:
    """Scored texts or ranked documents, in their order."""
    scale = _scale(items)
    rows = [
        [
            str(int(one.index)),
            _number(getattr(one, "score", None) if hasattr(one, "score") else one.relevance_score, "none"),
            _bar(one, scale),
            _text(one.answer if one.answer is not None else one.error),
            _number(one.penalty, ""),
        ]
        for one in items[:MAX_ROWS]
    ]
    return f"<div>{_table(('index', 'score', 'energy mu ± sigma', 'answer', 'penalty'), rows, len(items))}</div>"


def _table(names: Iterable[str], rows: Sequence[Sequence[str]], total: int) -> str:
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td style=text-align:left>{cell}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p><small>{total - len(rows)} more</small></p>" if total > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _scale(items: Sequence[Scored]) -> tuple[float, float]:
    """The energies at both ends of every bar."""
    spans = [(one.mu - one.sigma, one.mu + one.sigma) for one in items if one.mu is not None and one.sigma is not None]
    low, high = min((low for low, _ in spans), default=0.0), max((high for _, high in spans), default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bar(one: Scored, scale: tuple[float, float]) -> str:
    """A line from mu - sigma to mu + sigma with a dot at mu, and the numbers."""
    if one.mu is None or one.sigma is None or not (math.isfinite(one.mu) and math.isfinite(one.sigma)):
        return "not scored"
    low, high = scale

    def place(value: float) -> str:
        return f"{4 + (BAR_WIDTH - 8) * (value - low) / (high - low):.1f}"

    label = f"{one.mu:.3g} ± {one.sigma:.2g}"
    return (
        f"<svg width='{BAR_WIDTH}' height='14' role='img' aria-label='{label}' style='vertical-align:middle'>"
        f"<line x1='{place(one.mu - one.sigma)}' x2='{place(one.mu + one.sigma)}' y1='7' y2='7' "
        "stroke='currentColor' stroke-width='3' stroke-opacity='0.45'/>"
        f"<circle cx='{place(one.mu)}' cy='7' r='4' fill='currentColor'/></svg> {label}"
    )


def _number(value: float | None, none: str) -> str:
    return none if value is None else f"{value:.4g}"


def _text(value: str | None) -> str:
    return "" if value is None else escape(_cut(value))


def _list(values: Iterable[str]) -> str:
    return "<br>".join(escape(_cut(str(value))) for value in values)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
