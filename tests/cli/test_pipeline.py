"""What a stage says on the terminal."""

from rich.text import Text

from raydebm.cli.pipeline import ProgressBars, _describe
from raydebm.pipeline.runner import StageReport


def test_a_stage_is_one_line_however_much_it_has_to_say(capsys):
    ProgressBars().print(Text("calibration 3.0 s  " + "a fact, " * 100))

    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("calibration 3.0 s  a fact")
    assert line.endswith("…")


def test_a_reason_with_brackets_is_printed_as_it_is(capsys):
    """An endpoint's words, or a checker's, may look like the markup of the library that prints them."""
    facts = {"unlabeled": 2, "reasons": {"no completion: bad token [/INST] :x: [red]": 2}}
    ProgressBars().print(_describe(StageReport(stage="labels", reused=True, seconds=0.0, facts=facts)))

    assert capsys.readouterr().out == (
        "labels         reused  2 without a label, most often: no completion: bad token [/INST] :x: [red]\n"
    )


def test_a_calibration_names_its_thresholds_in_words():
    fit = {"profile": "vote", "tau_accept": 0.9, "tau_answer": 0.5, "certified": None}
    facts = {"lambda": 16.0, "theta_sigma": 0.5478, "theta_abstain": 0.5647, "decision": fit}

    assert str(_describe(StageReport(stage="calibration", reused=False, seconds=3.0, facts=facts))) == (
        "calibration     3.0 s  profile vote, accept from probability 0.9, refuse below 0.5, no guarantee, "
        "paper's rule: sigma up to 0.548"
    )
