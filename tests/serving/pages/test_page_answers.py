"""Answers with their evidence, in a real browser: of a live request, of a stored decision, in the list."""

import math
from types import SimpleNamespace

import httpx
import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.decisions.writer import DecisionWriter, RecordsArgs
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
POLICY = Policy(
    rule="posterior",
    posterior=Posterior(weights={"votes": 1.0}, context_weights={"none": -math.log(4)}),
    tau_accept=0.5,
    tau_answer=0.25,
    max_passes=1,
    guarantee={
        "max_error": 0.1,
        "confidence": 0.95,
        "certified": False,
        "problems": 12,
        "reason": f"12 problems are too few {HOSTILE}",
    },
)
"""With shares 3/4 and 1/4 of the candidates, and 1/4 for none of them, p is 3/5 and 1/5."""


@pytest.fixture
def service(write_run, recipe, script, listening, free_port):
    """Two generators write two candidates each: three times 4, once 5. Decisions are stored."""

    def write(request):
        return "#### 5" if (request.generator, request.sample_index) == ("bo", 1) else "#### 4"

    bundle = load_bundle(AppArgs(run_dir=write_run({**recipe, "task": {"name": "gsm8k"}}, POLICY)))
    writer = DecisionWriter(bundle.records.folder, RecordsArgs(flush_s=3600))
    with listening(create_app(TriageService(bundle, script(write), records=writer)), free_port) as url:
        yield SimpleNamespace(url=url, flush=writer.flush)
    writer.close()


@pytest.fixture
def asked(service, open_page):
    """The ask page after an answer."""

    def ask(**options):
        page = open_page(service.url, **options)
        page.locator("#task option").first.wait_for(state="attached")
        page.get_by_label("Text of the problem").fill("What is 2 + 2?")
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator("#answers .answer-card").first.wait_for()
        return page

    return ask


def rows(card):
    """Term and number of each row of a waterfall."""
    return [
        (row.locator("th").inner_text(), row.locator("td.number").inner_text())
        for row in card.locator(".waterfall tbody tr").all()
    ]


def test_the_confidence_is_a_sentence_beside_the_decision(asked):
    page = asked()
    words = page.locator("#decision .confidence").inner_text()
    assert words == "3 of 4 candidates from 2 models agree; right with probability 0.60."
    assert "3 of 4 candidates" in page.locator("#announcer").inner_text()


@pytest.mark.parametrize(
    ("checks", "constraints", "words"),
    [
        ([], {}, None),
        (["statements", "all_named"], {}, "every check holds (statements, all named)"),
        (["statements", "all_named"], {"all_named": 0.5}, "1 of 2 checks does not hold (all named)"),
    ],
    ids=["none", "all-hold", "one-broken"],
)
def test_checks_are_part_of_the_sentence(service, open_page, checks, constraints, words):
    page = open_page(service.url)
    sentence = page.evaluate(
        "async ([checks, constraints]) => (await import('./static/answers.js')).checksInWords(checks, constraints)",
        [checks, constraints],
    )
    assert sentence == words


def test_an_outcome_is_reported_next_to_the_decision(asked, service):
    page = asked()
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Right", exact=True).click()
    page.locator("#decision .badge", has_text="right").wait_for()
    assert httpx.get(f"{service.url}/v1/outcomes").json()["with_outcome"] == 1


def test_the_decision_is_above_the_fold_on_a_phone(asked):
    page = asked(width=390, height=844)
    page.wait_for_function("document.querySelector('#decision-card').getBoundingClientRect().top < 200")
    box = page.locator("#decision .confidence").bounding_box()
    assert box["y"] + box["height"] <= 844


def test_words_are_explained_where_the_pointer_rests(asked):
    assert asked().locator("#decision dt abbr", has_text="sigma").first.get_attribute("title") == (
        "Standard deviation of the energies over the adapters"
    )


def test_why_sampling_stopped_is_one_sentence(service, open_page):
    page = open_page(service.url)
    sentence = page.evaluate(
        """async () => (await import('./static/answers.js')).stopSentence({ stop_reason: 'accept',
        stop_words: 'the leading answer is settled', num_planned: 32, num_samples: 8, tokens_saved: 2400 })"""
    )
    assert sentence == "Stopped after 8 of 32 samples: the leading answer is settled. About 2,400 tokens saved."


def test_sigma_is_not_drawn_where_it_does_not_decide(asked):
    assert asked().locator("#decision .gate").count() == 0


def test_a_promise_that_is_not_certified_says_why_and_hostile_words_are_words(asked):
    page = asked()
    words = page.locator("#decision .guarantee").inner_text()
    assert "not certified" in words
    assert f"12 problems are too few {HOSTILE}" in words
    assert page.locator("main img").count() == 0


def test_candidates_are_taken_together_by_their_answer(asked):
    cards = asked().locator("#answers .answer-card")
    assert cards.locator("h3").all_inner_texts() == ["#### 4", "#### 5"]
    assert ["p 0.60" in cards.nth(0).inner_text(), "p 0.20" in cards.nth(1).inner_text()] == [True, True]
    assert "3 candidates from 2 models: ada, bo" in cards.nth(0).inner_text()
    assert "1 candidate from 1 model: bo" in cards.nth(1).inner_text()
    cards.nth(0).locator("summary").click()
    assert cards.nth(0).locator("li").count() == 3


def test_a_waterfall_adds_up_to_the_log_odds(asked):
    """Votes: log(3/4) and log(1/4) are log(3)/2 = 0.55 from their mean; log-odds log(3/2) = 0.41, log(1/4) = -1.39."""
    cards = asked().locator("#answers .answer-card")
    start, votes, total = "start: an average answer", "share of candidates", "log-odds in all"
    assert rows(cards.nth(0)) == [(start, "−0.14"), (votes, "+0.55"), (total, "+0.41")]  # noqa: RUF001
    assert rows(cards.nth(1)) == [(start, "−0.84"), (votes, "−0.55"), (total, "−1.39")]  # noqa: RUF001


BARS = """() => [...document.querySelectorAll('#answers .answer-card')].map((card) =>
  [...card.querySelectorAll('rect')].map((bar) => ['x', 'width'].map((name) => parseFloat(bar.getAttribute(name)))))"""


def test_bars_share_one_axis_and_start_where_the_last_one_ended(asked):
    page = asked()
    ends = page.evaluate(BARS)
    (start, votes, total), (other_start, other_votes, _) = ends
    assert votes[0] == pytest.approx(start[0], abs=0.01)  # from -0.14 upwards
    assert votes[0] + votes[1] == pytest.approx(total[0] + total[1], abs=0.01)
    assert other_votes[0] + other_votes[1] == pytest.approx(other_start[0], abs=0.01)  # further down
    assert other_votes[1] == pytest.approx(votes[1], abs=0.01)  # 0.55 is as wide in both


def test_a_stored_decision_shows_the_same(service, asked, open_page):
    asked()
    service.flush()
    page = open_page(f"{service.url}/decisions")
    page.locator("#list tbody tr").first.wait_for()
    names = page.locator("#list thead th").all_inner_texts()
    place = next(index for index, name in enumerate(names) if name.startswith("Confidence"))
    assert page.locator("#list tbody tr").first.locator("th, td").nth(place).inner_text() == "0.60"
    page.locator("#list .title-link").first.click()
    card = page.locator("article .answer-card").first
    card.wait_for()
    assert rows(card)[-1] == ("log-odds in all", "+0.41")
    words = page.locator("article").inner_text()
    assert "3 of 4 candidates from 2 models agree; right with probability 0.60." in words
    assert "not certified" in words
    assert "[object Object]" not in words


NOTE = """async (guarantee) => {
  const { guaranteeNote } = await import('./static/answers.js');
  return guaranteeNote(guarantee)?.textContent ?? null;
}"""
PROMISE = {"max_error": 0.05, "confidence": 0.9, "certified": True, "problems": 800, "suspended": False, "reason": None}


@pytest.mark.parametrize(
    ("guarantee", "expected"),
    [
        (None, None),
        (
            PROMISE,
            "✓certified Promised: at most 5 % of the answers given out are wrong, with confidence 90 % from 800 "
            "labelled problems.",
        ),
        (
            {**PROMISE, "problems": 300, "outcomes": {"decisions": 300}},
            "✓certified Promised: at most 5 % of the answers given out are wrong, with confidence 90 % from 300 "
            "reported outcomes.",
        ),
        (
            {**PROMISE, "suspended": True, "reason": "9 of 20 were wrong"},
            "!suspended The promise is not claimed at present: 9 of 20 were wrong.",
        ),
        (
            {**PROMISE, "certified": False, "reason": "the request changed lambda"},
            "–not certified Nothing is promised: the request changed lambda.",  # noqa: RUF001
        ),
    ],
    ids=["nothing", "certified", "by outcomes", "suspended", "not certified"],
)
def test_what_is_promised_in_words(service, open_page, guarantee, expected):
    assert open_page(service.url).evaluate(NOTE, guarantee) == expected


SENTENCE = """async ([confidence, answer, total]) => {
  const { confidenceSentence } = await import('./static/answers.js');
  return confidenceSentence({ confidence, answers: answer ? [answer] : [] }, total);
}"""


@pytest.mark.parametrize(
    ("confidence", "answer", "total", "expected"),
    [
        (None, None, 4, None),
        (
            0.93,
            {"num_candidates": 5, "authors": ["a", "b", "c"], "proof": None},
            8,
            "5 of 8 candidates from 3 models agree; right with probability 0.93.",
        ),
        (
            1.0,
            {"num_candidates": 1, "authors": ["a"], "proof": True},
            1,
            "1 of 1 candidate from 1 model gives this answer; an exact constraint proves it right.",
        ),
        (
            0.9999,
            {"num_candidates": 2, "authors": ["a"], "proof": None},
            2,
            "2 of 2 candidates from 1 model agree; right with probability > 0.99.",
        ),
        (
            0.0,
            {"num_candidates": 2, "authors": ["a"], "proof": False},
            3,
            "2 of 3 candidates from 1 model agree; an exact constraint refutes it.",
        ),
    ],
    ids=["without a posterior", "estimated", "proven", "nearly certain", "refuted"],
)
def test_confidence_in_words(service, open_page, confidence, answer, total, expected):
    assert open_page(service.url).evaluate(SENTENCE, [confidence, answer, total]) == expected


def test_a_proven_and_a_refuted_answer_are_marked(write_run, script, listening, free_port, open_page, puzzle, texts):
    """Statements of a puzzle are exact: they prove one answer and refute the other."""
    policy = Policy(rule="posterior", posterior=POLICY.posterior, max_passes=1)
    backend = script(lambda request: texts["right" if request.sample_index else "wrong"])
    app = create_app(TriageService(load_bundle(AppArgs(run_dir=write_run(policy=policy))), backend))
    with listening(app, free_port) as url:
        page = open_page(url)
        page.locator("#task option").first.wait_for(state="attached")
        page.get_by_label("Text of the problem").fill(puzzle)
        page.get_by_role("button", name="Ask", exact=True).click()
        cards = page.locator("#answers .answer-card")
        cards.first.wait_for()
        assert ["proven" in cards.nth(0).inner_text(), "refuted" in cards.nth(1).inner_text()] == [True, True]
        assert page.locator(".waterfall").count() == 0
        assert "an exact constraint proves it right" in page.locator("#decision .confidence").inner_text()


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1280, False)], ids=["phone-dark", "wide-light"])
def test_nothing_is_in_the_way_of_keyboard_screen_reader_or_phone(service, asked, open_page, faults_of, width, dark):
    page = asked(width=width, dark=dark)
    page.locator("#answers summary").first.click()
    assert faults_of(page) == []
    service.flush()
    stored = open_page(f"{service.url}/decisions", width=width, dark=dark)
    stored.locator("#list .title-link").first.click()
    stored.locator("article .answer-card").first.wait_for()
    assert faults_of(stored) == []
