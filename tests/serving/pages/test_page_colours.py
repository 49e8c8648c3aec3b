"""Colours of the design tokens, computed: contrast in light and dark, and apart for eyes without red or green cones."""

import itertools
import re

import pytest

from raydebm.serving.pages.files import static_files

TEXTS = ["text", "muted", "accent", "accept", "abstain", "regenerate", "violation", "threshold"]
MARKS = ["mark-mu", "mark-sigma", "mark-penalty", "mark-member", "threshold", "control-line"]
BADGES = ["accept", "abstain", "regenerate", "violation"]
# Machado, Oliveira and Fernandes 2009, severity 1.0; on linear RGB.
DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))


def tokens(block):
    return dict(re.findall(r"--([a-z-]+):\s*(#[0-9a-f]{6})\b", block))


def themes():
    css = static_files()["base.css"].content.decode()
    light = tokens(css[: css.index("@media")])
    dark = tokens(css[css.index("prefers-color-scheme: dark") : css.index("@media print")])
    paper = tokens(css[css.index("@media print") : css.index("/* ---- ground")])
    return {"light": light, "dark": {**light, **dark}, "paper": {**light, **paper}}


def linear(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]


def luminance(colour):
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula_gives_the_known_extremes():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.fixture(params=sorted(themes()))
def theme(request):
    return themes()[request.param]


def test_dark_and_paper_name_every_colour_again():
    css = static_files()["base.css"].content.decode()
    light = set(tokens(css[: css.index("@media")]))
    dark = set(tokens(css[css.index("prefers-color-scheme: dark") : css.index("@media print")]))
    assert dark == light


@pytest.mark.parametrize("ground", ["background", "surface", "sunken"])
def test_texts_can_be_read_on_every_ground(theme, ground):
    contrasts = {name: contrast(theme[name], theme[ground]) for name in TEXTS}
    assert {name: round(value, 2) for name, value in contrasts.items() if value < 4.5} == {}


def test_texts_can_be_read_on_their_own_tint(theme):
    contrasts = {name: contrast(theme[name], theme[f"{name}-soft"]) for name in [*BADGES, "accent"]}
    contrasts |= {f"text on {name}": contrast(theme["text"], theme[f"{name}-soft"]) for name in [*BADGES, "accent"]}
    contrasts |= {"muted on the selected row": contrast(theme["muted"], theme["accent-soft"])}
    contrasts |= {"button": contrast(theme["on-accent"], theme["accent"])}
    assert {name: round(value, 2) for name, value in contrasts.items() if value < 4.5} == {}


@pytest.mark.parametrize("ground", ["background", "surface", "accent-soft"])
def test_marks_stand_out_from_every_ground(theme, ground):
    contrasts = {name: contrast(theme[name], theme[ground]) for name in MARKS}
    assert {name: round(value, 2) for name, value in contrasts.items() if value < 3} == {}


@pytest.mark.parametrize("matrix", [DEUTERANOPIA, PROTANOPIA], ids=["deuteranopia", "protanopia"])
def test_marks_of_one_chart_differ_for_everybody(theme, matrix):
    """mu, penalties and members lie side by side; distance in CIELAB, where 20 is plainly another colour."""
    seen = {name: lab(matrix, theme[name]) for name in ("mark-mu", "mark-penalty", "mark-member")}
    for one, other in itertools.combinations(seen, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert distance > 20, (one, other)


def lab(matrix, colour):
    channels = linear(colour)
    red, green, blue = (min(1, max(0, sum(m * c for m, c in zip(row, channels, strict=True)))) for row in matrix)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)
