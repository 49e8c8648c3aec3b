"""Rescoring and style swaps, with scorers and generators that are rules."""

import asyncio
import json

import numpy as np
import pytest
from hand_made import cells, table_of

from raydebm.errors import PoolError, ScoringError
from raydebm.evaluation.confounding.experiments import rescored, style_ablation, variants
from raydebm.evaluation.confounding.report import ConfoundingReport, ConfoundingSettings, confounding_steps
from raydebm.evaluation.confounding.swap import MAX_PROBLEMS, Rewriter, _examples, style_swap
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.generators.requests import answered, unanswered
from raydebm.records import Label, Verdict
from raydebm.scorer.texts import TextEnergies


class RuleScorer:
    """Energies by a rule of the text; refuses texts with NAN."""

    def __init__(self, rule):
        self.rule = rule
        self.texts = []

    def score(self, texts):
        if any("NAN" in text for _, text in texts):
            raise ScoringError("not a number")
        self.texts += texts
        return [TextEnergies(members=(self.rule(text),), num_tokens=1, num_truncated=0) for _, text in texts]


def likes_headings(text):
    """-2 for a heading, -1 for the right number."""
    return -2.0 * text.startswith("## ") - 1.0 * ("4" in text)


@pytest.fixture
def pools(make_pool):
    """``fancy`` writes headings, ``plain`` does not; both are right once and wrong once, in each of six problems."""
    rows = (
        (1, {"generator": "fancy", "text": "## Sum\n4"}),
        (0, {"generator": "fancy", "text": "## Sum\n5"}),
        (1, {"generator": "plain", "text": "Sum\n4"}),
        (0, {"generator": "plain", "text": "Sum\n5"}),
    )
    return table_of(make_pool(*rows, problem_id=f"p{index}") for index in range(6))


def bootstrap_of(pools):
    return Bootstrap.of(pools.num_pools, num_bootstrap=100, seed=1)


def test_taking_out_the_style_takes_out_the_spread_and_keeps_the_gap(pools):
    rows = {
        row.name: row
        for row in style_ablation(pools, RuleScorer(likes_headings), lambda_=1.0, bootstrap=bootstrap_of(pools))
    }

    assert rows["original"].screen.spread_range.value == 2.0
    assert rows["no headers"].screen.spread_range.value == 0.0
    assert rows["original"].screen.gap_within.value == rows["no headers"].screen.gap_within.value == 1.0
    assert (rows["original"].num_changed, rows["no headers"].num_changed) == (0, 12)


def test_variants_that_change_nothing_are_left_out(pools):
    rows = style_ablation(pools, RuleScorer(likes_headings), lambda_=1.0, bootstrap=bootstrap_of(pools))

    assert [row.name for row in rows] == [
        "original", "no headers", "no headers + latex", "no headers + latex + io", "no headers + latex + io + comments",
    ]  # fmt: skip
    assert "code only" in variants()


def test_equal_texts_are_scored_once_over_all_variants(pools):
    scorer = RuleScorer(likes_headings)

    style_ablation(pools, scorer, lambda_=1.0, bootstrap=bootstrap_of(pools))

    assert len(scorer.texts) == len(set(scorer.texts)) == 4


def test_a_variant_is_about_the_problems_that_have_such_texts(make_pool):
    """One of two problems has code: there the choice by the code alone is right, and by the whole text wrong."""
    right, wrong = "```python\n4\n```", "## no\n```python\n5\n```"
    pools = table_of(
        [
            make_pool((1, {"text": right, "generator": "a"}), (0, {"text": wrong, "generator": "b"}), problem_id="p"),
            make_pool((1, {"text": "4", "generator": "a"}), (0, {"text": "5", "generator": "b"}), problem_id="q"),
        ]
    )

    rows = style_ablation(pools, RuleScorer(likes_headings), lambda_=1.0, bootstrap=bootstrap_of(pools))
    row = next(row for row in rows if row.name == "code only")

    assert (row.num_candidates, row.screen.num_problems) == (2, 1)
    assert (row.screen.accuracy["energy (paper)"].value, row.paper_by_original.value) == (1.0, 0.0)


def test_a_text_that_cannot_be_scored_is_counted_and_the_others_are_scored(make_pool):
    pools = table_of(make_pool((1, {"text": "4", "generator": "a"}), (0, {"text": "NAN", "generator": "b"})))

    row = style_ablation(pools, RuleScorer(likes_headings), lambda_=1.0, bootstrap=bootstrap_of(pools))[0]

    assert (row.num_candidates, row.num_failed) == (1, 1)


def test_pools_under_another_scorer(pools):
    changed = rescored(pools, RuleScorer(likes_headings))

    assert sorted(changed.of_pools([0]).mu.tolist()) == [-3.0, -2.0, -1.0, 0.0]
    assert np.isnan(pools.mu).all()


class RuleGenerator:
    """Rewrites by a rule of the solution; None is a failed request."""

    def __init__(self, name, rule):
        self.name = name
        self.rule = rule
        self.requests = []

    async def stream(self, requests):
        self.requests += requests
        for request in reversed(requests):
            solution = request.messages[-1]["content"].split("Solution:\n")[1].split("\n\n")[0]
            text = self.rule(solution)
            yield unanswered(request, "HTTP 500") if text is None else answered(request, text)

    async def aclose(self):
        pass


def check(problem, candidate):
    verdict = Verdict.UNLABELED if candidate.text is None else Verdict.INCORRECT
    if candidate.text is not None and "4" in candidate.text:
        verdict = Verdict.CORRECT
    return Label(candidate_id=candidate.candidate_id, problem_id=problem.problem_id, verdict=verdict)


def swapped(pools, rewriters):
    return asyncio.run(
        style_swap(
            pools,
            rewriters,
            source="fancy",
            scorer=RuleScorer(likes_headings),
            check=check,
            max_tokens=64,
            seed=0,
        )
    )


def test_the_same_answer_in_another_style_has_another_energy(pools):
    plain = RuleGenerator("plain-model", lambda text: text.removeprefix("## "))
    own = RuleGenerator("fancy-model", lambda text: text)

    result = swapped(pools, [Rewriter(style="plain", generator=plain), Rewriter(style="fancy", generator=own)])

    assert {(request.sampling.temperature, request.sampling.top_p) for request in plain.requests} == {(0.0, 1.0)}
    rows = {row.style: row for row in result.rows}
    assert (rows["plain"].change.value, rows["plain"].change.n) == (2.0, 6)
    assert (rows["fancy"].change.value, rows["fancy"].is_control) == (0.0, True)


def test_other_styles_are_also_taken_together(pools):
    """Without the heading mu rises by 2; without the right number too nothing counts."""
    rules = {"plain": lambda text: text.removeprefix("## "), "terse": lambda text: "4", "fancy": lambda text: text}

    rows = swapped(pools, [Rewriter(style=name, generator=RuleGenerator(name, rule)) for name, rule in rules.items()])

    assert [(row.style, row.num_asked, row.change.value, row.is_control) for row in rows.rows] == [
        ("plain", 6, 2.0, False), ("terse", 6, 2.0, False), ("fancy", 6, 0.0, True),
        ("(all other styles)", 12, 2.0, False),
    ]  # fmt: skip


def test_examples_of_a_style_are_right_answers_to_three_problems(make_pool):
    pools = [
        make_pool(
            (0, {"text": "no"}), (1, {"text": f"yes {name}"}), (1, {"text": "h", "generator": "h"}), problem_id=name
        )
        for name in "dcba"
    ]

    assert _examples(table_of(pools), "g") == ("yes a", "yes b", "yes c")


def test_only_rewritings_that_are_still_correct_count(make_pool, pools):
    replies = iter(["4", "5", None, "4", "4", "4"])
    careless = RuleGenerator("m", lambda text: next(replies))

    row = swapped(pools, [Rewriter(style="plain", generator=careless)]).rows[0]

    assert (row.num_asked, row.num_failed, row.num_incorrect, row.change.n) == (6, 1, 1, 4)
    assert row.change.value == 2.0


def test_examples_of_a_style_are_shown_when_someone_else_rewrites(pools):
    other = RuleGenerator("m", lambda text: "4")

    swapped(pools, [Rewriter(style="plain", generator=other, examples=("Look: 7",))])

    content = other.requests[0].messages[-1]["content"]
    assert "Example 1:\nLook: 7" in content
    assert "these examples" in content


def test_at_most_forty_answers_are_rewritten(make_pool):
    pools = table_of(
        make_pool((1, {"generator": "fancy", "text": "4"}), problem_id=f"p{index:02d}-") for index in range(42)
    )
    writer = RuleGenerator("m", lambda text: "4")

    swapped(pools, [Rewriter(style="plain", generator=writer)])

    assert len({request.problem_id for request in writer.requests}) == len(writer.requests) == MAX_PROBLEMS == 40


def test_a_source_without_a_correct_answer_has_nothing_to_swap(make_pool):
    pools = table_of(make_pool((0, {"generator": "fancy"})))
    with pytest.raises(PoolError, match="no correct answer"):
        swapped(pools, [Rewriter(style="plain", generator=RuleGenerator("m", str))])


def test_the_report_holds_every_section_as_data_and_as_text(pools):
    scorer = RuleScorer(likes_headings)
    plain = RuleGenerator("plain-model", lambda text: text.removeprefix("## "))
    swaps = (swapped(pools, [Rewriter(style="plain", generator=plain)]),)

    *_, report = confounding_steps(
        rescored(pools, scorer), validation=pools, name="rule", scorer=scorer, swaps=swaps,
        settings=ConfoundingSettings(lambda_=1.0, task="toy", max_texts=20),
    )  # fmt: skip

    assert isinstance(report, ConfoundingReport)
    assert report.num_ablation_problems == 5
    rows = {table.title: cells(table) for table in report.tables()}
    assert rows["Generators"][0] == (
        "fancy", "12", "50.0", "50.0", "100.0", "+50.0", "-3.000", "-2.000", "-1.000", "1.000",
    )  # fmt: skip
    # Spreads of -3 and -1 within and over problems; all picks are right, and half of what fancy wrote.
    assert [row[1] for row in rows["Screen"]] == [
        "1.000", "2.000", *["1.000"] * 5, "100.0", "50.0 (fancy)", "50.0", "100.0", "+50.0", "2",
    ]  # fmt: skip
    assert rows["Style ablation"][1] == (
        "no headers", "20", "10", "0.000", "-", "1.000", "1.000", "5", "100.0", "100.0",
    )  # fmt: skip
    assert rows["Style swap of correct answers by fancy"] == [("plain", "6", "0", "0", "0", "6", "2.000")]
    assert all(f"### {title}" in report.document().markdown() for title in rows)
    assert report.summary().startswith("Scorer rule, 6 problems, lambda 1. The screen warns: picked more often than")
    assert "fancy (+50 points); the generator explains 100 % of the variance" in report.summary()
    assert "&lt;b&gt;" in report.document({"command": "<b>"}).html()
    stored = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert stored["screen"]["spread"]["value"] == 1.0
    assert stored["warnings"]


def test_a_figure_of_the_screen_says_on_how_many_problems_and_whether_in_hindsight(make_pool):
    """Of two problems a answered one, rightly; b none of the two."""
    wrong = (0, {"generator": "b", "members": (1.0,)})
    pools = [make_pool((1, {"generator": "a", "members": (0.0,)}), wrong), make_pool(wrong, problem_id="q")]
    (report,) = confounding_steps(table_of(pools), settings=ConfoundingSettings(lambda_=1.0))

    shown = {name: value for name, value, _ in cells(report.tables()[1])}
    assert shown["energy (paper): correct %"] == "50.0"
    assert shown["best generator: correct %"] == "100.0 (n=1; a, chosen in hindsight)"
    assert shown["spread within problems, in units of that gap"] == "no gap"


def test_a_line_goes_before_each_step_that_takes_long(pools):
    scorer = RuleScorer(likes_headings)
    settings = ConfoundingSettings(lambda_=1.0, max_texts=12)

    *lines, report = confounding_steps(rescored(pools, scorer), settings=settings, scorer=scorer)

    assert lines == ["style ablation: scoring the answers to 3 problems in up to 10 forms"]
    assert report.num_ablation_problems == 3


def test_a_report_without_a_scorer_has_the_screen_and_the_selections_alone(pools):
    (report,) = confounding_steps(
        rescored(pools, RuleScorer(likes_headings)), settings=ConfoundingSettings(lambda_=1.0)
    )

    assert (report.ablation, report.swaps) == ((), ())
    assert [table.title for table in report.tables()] == [
        "Generators",
        "Screen",
        "Selections by generator and difficulty",
    ]
