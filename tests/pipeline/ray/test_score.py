"""Energies on Ray Data."""

import json

import pytest
from scorer_parts import recipe_for

from raydebm.errors import CheckpointError, ScoringError
from raydebm.pipeline.ray.score import ScoringInput, by_problem, in_windows, score
from raydebm.records import Candidate, Problem
from raydebm.run.directory import RunDir
from raydebm.run.tables import EnergyRow, KnownEnergies
from raydebm.scorer.texts import TextEnergies, score_texts


class Fake:
    """Energy = length of the candidate; refuses any batch that holds "nan"."""

    def __init__(self):
        self.batches = []

    def score(self, texts):
        self.batches.append(len(texts))
        if any(text == "nan" for _, text in texts):
            raise ScoringError("energy is NaN")
        return [
            TextEnergies(
                members=(float(len(text)), 0.0), num_tokens=7, num_truncated=3, problem_read=0.5, answer_read=0.25
            )
            for _, text in texts
        ]


def test_a_text_without_an_energy_is_a_row_and_the_others_are_scored():
    rows = score_texts(Fake(), [("x", text) for text in ("a", "bb", "nan", "dddd")])

    assert [row.members for row in rows] == [(1.0, 0.0), (2.0, 0.0), None, (4.0, 0.0)]
    assert [row.error for row in rows] == [None, None, "energy is NaN", None]
    assert [(row.problem_read, row.answer_read) for row in rows[1:3]] == [(0.5, 0.25), (None, None)]


PROBLEMS = {f"p{index}": Problem(task="moody", problem_id=f"p{index}", prompt=f"w{index} w2") for index in range(3)}


def candidate(number, text):
    return Candidate(
        candidate_id=f"c{number}",
        task="moody",
        problem_id=f"p{number % 3}",
        generator="g",
        text=text,
        error=None if text is not None else "no reply",
    )


def test_a_window_ends_with_the_problem_in_which_it_is_full(monkeypatch):
    """Eight characters a text: the third problem alone has the 24 that fill a window, the others the four rows."""
    monkeypatch.setattr("raydebm.pipeline.ray.score.WINDOW_ROWS", 4)
    monkeypatch.setattr("raydebm.pipeline.ray.score.WINDOW_CHARS", 24)
    texts = [("p0", None)] * 3 + [("p1", None)] * 2 + [("p2", "x" * 8)] * 3 + [("p0", None)]
    candidates = [
        Candidate(candidate_id=f"c{number}", task="moody", problem_id=problem_id, generator="g", text=text)
        for number, (problem_id, text) in enumerate(texts)
    ]

    windows = [[place for place, _ in window] for window in in_windows(enumerate(candidates))]

    assert windows == [[0, 1, 2, 3, 4], [5, 6, 7], [8]]


def test_a_problems_texts_follow_each_other_for_a_decoder():
    texts = ["abT", "cdT", "aeT", "cfF", "agF", "chF"]
    rows = [dict(zip(("prompt", "text", "members"), text, strict=True)) for text in texts]

    assert "".join(row["text"] for row in by_problem(rows)) == "bedfhg"


def stored(run, candidates):
    run.write_candidates(candidates)
    return run.stored_candidates()


def test_known_energies_are_not_made_again(tmp_path):
    """No scorer could be started here. p1's problem asks the second adapter alone."""
    candidates = [candidate(0, "w1"), candidate(1, "w2"), candidate(2, None)]
    rows = {f"c{number}": EnergyRow(candidate_id=f"c{number}", members=(1.0, 2.0 + number)) for number in range(2)}
    run = RunDir(str(tmp_path))

    summary = score(
        ScoringInput(
            problems=PROBLEMS,
            candidates=candidates,
            members={"p1": (False, True)},
            known=KnownEnergies(rows=rows, dtype="bfloat16"),
        ),
        checkpoint=str(tmp_path / "nothing"),
        recipe=recipe_for(tmp_path),
        run=run,
    )

    assert [row.members for row in run.energies()] == [(1.0, 2.0), (None, 3.0), None]
    assert [summary[name] for name in ("candidates", "texts", "failed", "dtype")] == [3, 0, 1, "bfloat16"]


@pytest.mark.ray
def test_adapters_that_are_not_asked_leave_their_energies_open(five, tmp_path):
    """Of p1 the first and the last adapter, of p2 the third; of p0 all."""
    from raydebm.scorer.ensemble import EnsembleScorer

    asked = {"p1": (True, False, False, False, True), "p2": (False, False, True, False, False)}
    candidates = [candidate(number, f"w{number % 5} right") for number in range(30)]
    run = RunDir(str(tmp_path))
    checkpoint = str(five[0] / "scorer")

    given = ScoringInput(problems=PROBLEMS, candidates=candidates, members=asked)
    score(given, checkpoint=checkpoint, recipe=recipe_for(tmp_path), run=run)

    rows = run.energies()
    alone = EnsembleScorer.load(checkpoint, device="cpu").score(
        [(PROBLEMS[answer.problem_id].prompt, answer.text) for answer in candidates]
    )
    for answer, row, every in zip(candidates, rows, alone, strict=True):
        mask = asked.get(answer.problem_id, (True,) * 5)
        assert [energy is not None for energy in row.members] == list(mask)
        expected = [energy for energy, is_asked in zip(every.members, mask, strict=True) if is_asked]
        assert row.energies.members == pytest.approx(expected, abs=1e-5)


@pytest.mark.ray
def test_a_checkpoint_is_not_scored_with_another_reading_of_candidates(five, tmp_path):
    recipe = recipe_for(tmp_path)
    recipe = recipe.model_copy(update={"scorer": recipe.scorer.model_copy(update={"reasoning": "all"})})

    given = ScoringInput(problems=PROBLEMS, candidates=[candidate(1, "w1")])

    with pytest.raises(CheckpointError, match=r"trained with scorer\.reasoning 'answer', and the recipe says 'all'"):
        score(given, checkpoint=str(five[0] / "scorer"), recipe=recipe, run=RunDir(str(tmp_path)))


# Last in this module, and the actors last of all: they take processes that have imported torch along when they end.
@pytest.mark.ray
@pytest.mark.parametrize(
    ("gpus", "window", "num_texts"),
    [(0, 8192, 15), (0, 20, 71), (0.5, 8192, 15)],
    ids=["tasks-on-cpus", "in-five-windows", "actors-on-gpus"],
)
def test_every_candidate_gets_the_energies_that_the_scorer_alone_gives(
    five, tmp_path, monkeypatch, gpus, window, num_texts
):
    """Fifteen different texts, in four batches of two workers each. A window of 20 has all of them, the last has 11."""
    from raydebm.scorer.ensemble import EnsembleScorer

    monkeypatch.setattr("raydebm.pipeline.ray.score.WINDOW_ROWS", window)

    monkeypatch.setattr("raydebm.pipeline.ray.placement.at_once", lambda *of, **how: 2)
    monkeypatch.setattr("raydebm.pipeline.ray.score.TEXTS_PER_WORKER", 8)
    checkpoint = str(five[0] / "scorer")
    candidates = [candidate(number, f"w{number % 5} right") for number in range(90)]
    candidates.insert(4, candidate(1000, None))
    run = RunDir(str(tmp_path))

    given = ScoringInput(problems=PROBLEMS, candidates=stored(run, candidates))
    recipe = recipe_for(tmp_path, gpus_per_adapter=gpus)
    summary = score(given, checkpoint=checkpoint, recipe=recipe, run=run)

    rows = run.energies()
    assert [row.candidate_id for row in rows] == [answer.candidate_id for answer in candidates]
    assert "no reply" in rows[4].error
    texts = [(PROBLEMS[answer.problem_id].prompt, answer.text) for answer in candidates if answer.text is not None]
    alone = EnsembleScorer.load(checkpoint, device="cpu").score(texts)
    scored = [row.energies for row in rows if row.error is None]
    for energies, expected in zip(scored, alone, strict=True):
        assert energies.members == pytest.approx(expected.members, abs=1e-5)
    assert (summary["candidates"], summary["failed"]) == (91, 1)
    assert (summary["texts"], summary["dtype"]) == (num_texts, "float32")
    assert run.names("energies") == ["energies.parquet"]
    assert not run.exists("energies", "spool")
    assert json.dumps(summary)
