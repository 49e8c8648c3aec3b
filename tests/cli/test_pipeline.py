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
        "labels         reused  unlabeled 2, reasons (no completion: bad token [/INST] :x: [red] 2)\n"
    )
