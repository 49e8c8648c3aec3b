"""The first three sentences of a report, its main selectors, and what sampling in waves saved."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hand_made import table_of

from raydebm.config import EvaluationConfig
from raydebm.decision.policy import Policy
from raydebm.evaluation.certainty.confidence import Promise
from raydebm.evaluation.report.evaluation_report import document
from raydebm.evaluation.report.evaluation_tables import loop_table, main_table
from raydebm.evaluation.report.headline import main_rows, sentences
from raydebm.evaluation.results.entries import LoopSummary, wave_savings
from raydebm.evaluation.results.evaluation import EvaluationInputs, TextsRead, evaluate
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.records import Decision, Outcome, PassRecord, PassStop, Problem


@pytest.fixture(scope="module")
def evaluation(make_pool):
    """Problem 1: ours right. Problem 2: ours wrong, and one of four candidates right."""
    pools = [
        make_pool((1, {"members": (0.0, 0.0)}), (0, {"members": (1.0, 1.0), "generator": "h"}), problem_id="one"),
        make_pool(
            *[(label, {"members": (float(energy), energy + 0.1)}) for energy, label in enumerate([0, 1, 0, 0])],
            problem_id="two",
        ),
    ]
    config = EvaluationConfig(num_bootstrap=100)
    return evaluate(
        EvaluationInputs(pools=table_of(pools), policy=Policy(), config=config, task="toy", adapters=("a0", "a1"))
    )


def certified(max_error, coverage):
    estimate = Estimate(value=coverage, low=None, high=None, n=100)
    return Promise(
        max_error=max_error, confidence=0.9, certified=True, tau=0.5, problems=100, coverage=coverage, upper_bound=None,
        more_problems=None, test_coverage=estimate, test_error=estimate,
    )  # fmt: skip


def test_a_larger_error_is_promised_only_where_it_answers_more(evaluation):
    promises = (certified(0.1, 0.61), certified(0.2, 0.94), certified(0.3, 0.943))
    decision = SimpleNamespace(promises=promises, num_labelled=100, tests=(), profile="vote")

    *_, promise = sentences(replace(evaluation, decision=decision))

    assert promise == (
        "With confidence 0.9 may be promised: an error of at most 10 % at coverage 61 %, or an error of at most 20 % "
        "at coverage 94 %."
    )


def test_the_main_rows_are_few_and_end_with_the_oracle(evaluation):
    names = [row.name for row in main_rows(evaluation)]

    assert (names[0], names[-1]) == ("random", "oracle")
    assert {"majority vote", "best generator (chosen in hindsight)", "ours"} <= set(names)
    assert not any(name.startswith(("adapter", "generator", "greedy")) for name in names)


def test_the_best_third_party_baseline_stands_before_the_oracle(evaluation):
    ours, chance = evaluation.row("ours"), evaluation.row("random")
    external = (replace(chance, name="weak judge", group="external"), replace(ours, name="judge", group="external"))

    names = [row.name for row in main_rows(replace(evaluation, rows=(*external, *evaluation.rows)))]

    assert names[-2:] == ["judge (best of 2, in hindsight)", "oracle"]
    assert not any(name.startswith("weak judge") for name in names)


def test_the_table_of_the_terminal_has_at_most_twelve_rows_and_a_hundred_columns(evaluation):
    everything = [
        replace(evaluation.row("ours"), name=name, group="ours")
        for name in ("chosen profile", "ours, all passes", "ours, answered only")
    ]
    judge = replace(evaluation.row("ours"), name="a third-party judge", group="external")
    table = main_table(replace(evaluation, rows=(judge, *everything, *evaluation.rows)))
    widths = [max(len(row[column]) for row in (table.headers, *table.rows)) for column in range(len(table.headers))]

    assert len(table.rows) == 11
    assert sum(widths) + 3 * len(widths) + 1 <= 100


def test_three_sentences_say_what_was_chosen_how_good_it_is_and_what_may_be_promised(evaluation):
    choice, quality, promise = sentences(evaluation)

    assert choice.startswith("The paper's rule decides: lowest mu + 1 E_constraint")
    assert quality.startswith("On 2 test problems its selection is correct on 50.0 [0.0, 100.0] % (random 37.5,")
    assert quality.endswith("oracle 100.0).")
    assert promise == "No posterior was fitted, so nothing may be promised."


def read_of(split, without_problem, *, num_candidates=100):
    return TextsRead(
        split=split, num_candidates=num_candidates, without_problem=without_problem, problem_cut=4, answer_cut=52
    )


def test_where_the_scorer_read_no_problem_the_report_opens_with_a_warning(evaluation):
    read = (read_of("validation", 10), read_of("test", 11), read_of("train", 84))
    opening = sentences(replace(evaluation, texts_read=read))[0]

    assert opening.startswith(
        "Warning: of 11 % of the 100 candidates of test and 84 % of the 100 candidates of train the scorer read nothing"
    )
    page = document(replace(evaluation, texts_read=read)).markdown().splitlines()
    assert opening in page[:6]
    assert "| validation | 100 | 10.0 | 4.0 | 52.0 |" in page


@pytest.mark.parametrize("read", [(), (read_of("test", None),), (read_of("test", 10),)])
def test_there_is_no_warning_where_a_tenth_lacks_its_problem_or_nothing_is_known(evaluation, read):
    assert len(sentences(replace(evaluation, texts_read=read))) == 3


def test_the_report_opens_with_a_figure_and_the_sentences_and_folds_its_tables(evaluation):
    page = document(evaluation).html()
    top, rest = page.split("</header>")

    assert top.count("<svg") == 1
    for sentence in ("The paper&#39;s rule decides", "On 2 test problems", "No posterior"):
        assert sentence in top
    assert "<table" not in top
    assert rest.count("<table") == sum("<table" in part for part in rest.split("<details>")[1:])
    assert "<details open" not in page


def stop(reason, planned, samples, tokens_saved):
    return PassStop(reason=reason, words="", num_planned=planned, num_samples=samples, tokens_saved=tokens_saved)


@pytest.fixture
def outcome(make_item):
    def make(name, *stops, tokens):
        """One pass per stop, with as many candidates as it says, of so many tokens each."""
        passes, pool = [], []
        for index, each in enumerate(stops, start=1):
            passes.append(
                PassRecord(
                    pass_index=index, num_requested=each.num_samples, num_failed=0, selected=None, sigma=None,
                    penalty=None, decision=Decision.ABSTAIN, stop=each,
                )
            )  # fmt: skip
            for sample in range(each.num_samples):
                scored = make_item(f"{name}{index}{sample}", pass_index=index)
                pool.append(
                    replace(scored, candidate=replace(scored.candidate, prompt_tokens=2, completion_tokens=tokens))
                )
        return Outcome(
            problem=Problem(task="t", problem_id=name, prompt=""),
            decision=Decision.ABSTAIN,
            best=None,
            passes=tuple(passes),
            pool=tuple(pool),
            reason="",
        )

    return make


def test_savings_of_waves_are_shares_of_what_was_planned(outcome):
    """Passes of 8: 2 drawn of 12 tokens each, 6 saved of 12 tokens; 8 drawn of 12; nothing saved."""
    first = outcome("a", stop("accept", 8, 2, 72), tokens=10)
    second = outcome("b", stop("budget", 8, 8, 0), tokens=10)

    savings = wave_savings([first, second])

    assert (savings.num_passes, savings.num_ended_early, savings.num_samples) == (2, 1, 6)
    assert savings.sample_share == 6 / 16
    assert savings.token_share == 72 / (72 + 2 * 12 + 8 * 12)


def test_passes_without_waves_have_no_savings(outcome):
    assert wave_savings([outcome("a", tokens=10)]) is None


def test_the_table_of_the_loop_has_the_savings(evaluation, outcome):
    estimate = evaluation.row("ours").pass_at_1
    counts = {name: 0 for name in LoopSummary.__dataclass_fields__ if name.startswith("num_")}
    loop = LoopSummary(
        coverage=estimate, answered=estimate, first=estimate, regenerated=estimate, **counts,
        waves=wave_savings([outcome("a", stop("accept", 8, 2, 72), tokens=10)]),
    )  # fmt: skip

    rows = {row[0]: row[1] for row in loop_table(replace(evaluation, loop=loop)).rows}

    assert rows["passes that sampling in waves ended early"] == "1 of 1"
    assert rows["samples that this saved, %"] == "75.0"
    assert rows["tokens that this saved, %"] == "75.0"
