"""Every parser on the corpus, on generated texts, and on long ones, whose time grows with their length alone."""

import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside this one

from targets import TOKENS, targets

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.txt"))
TEXTS = st.lists(st.sampled_from(TOKENS) | st.text(max_size=4), max_size=12).map("".join)
LONG = 64_000
MAX_S = 5.0
"""Of CPU time for a text of ``LONG`` characters: a parser of quadratic time takes minutes for the worst of them."""

every_target = pytest.mark.parametrize("name", sorted(targets()))


@every_target
def test_what_was_found_once_stays_fixed(name):
    for file in CORPUS:
        targets()[name](file.read_bytes().decode("utf-8", "surrogatepass"))


@every_target
def test_any_text(name):
    @settings(max_examples=100)
    @given(TEXTS)
    def run(text):
        targets()[name](text)

    run()


@pytest.mark.slow
@every_target
def test_time_grows_with_the_length_alone(name):
    slow = {}
    for token in TOKENS:
        text = (token * (LONG // len(token) + 1))[:LONG]
        started = time.process_time()
        targets()[name](text)
        slow[token] = time.process_time() - started
    assert {token: round(seconds, 1) for token, seconds in slow.items() if seconds > MAX_S} == {}
