"""What a stage says on the terminal."""

from raydebm.cli.pipeline import ProgressBars


def test_a_stage_is_one_line_however_much_it_has_to_say(capsys):
    ProgressBars().print("[bold]calibration[/bold] 3.0 s  " + "a fact, " * 100)

    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("calibration 3.0 s  a fact")
    assert line.endswith("…")
