"""What notebooks show: everything escaped, bars in proportion, nothing from outside."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from raydebm_client.results import rerank_result, score_result, triage_result

HOSTILE = '<script>alert(1)</script>\' onload="x" &amp;'


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def result(text="42", **changes):
    candidates = [
        {
            "candidate_id": f"c{index}",
            "generator": text,
            "text": text,
            "answer": text,
            "energy": mu,
            "mu": mu,
            "sigma": 1.0,
            "penalty": 0.0,
            "violations": [{"message": text}],
        }
        for index, mu in enumerate((0.0, -3.0))
    ]
    base = {
        "decision": "accept",
        "reason": text,
        "request_id": text,
        "task": text,
        "problem_id": "p",
        "answer": text,
        "candidate": candidates[1],
        "candidates": candidates,
    }
    return triage_result({**base, **changes})


def test_candidates_are_sorted_by_energy_and_the_best_is_marked():
    html = result()._repr_html_()
    assert html.index("-3 ± 1") < html.index("0 ± 1")
    assert html.count("★") == 1


def test_bars_are_in_proportion():
    """Energies from -4 to 1 on 152 pixels, 4 from the edge: mu = -3 stands at 4 + 152 / 5."""
    html = result()._repr_html_()
    assert "<line x1='4.0' x2='64.8'" in html
    assert "<circle cx='34.4'" in html


@given(st.one_of(st.just(HOSTILE), st.text()))
def test_nothing_that_was_written_becomes_markup(text):
    plain = Tags(result()._repr_html_())
    odd = Tags(result(text)._repr_html_())
    assert odd.tags == plain.tags
    assert odd.attributes == plain.attributes


def test_score_and_rerank_tables_escape_too():
    entry = {"index": 0, "score": 1.0, "relevance_score": 1.0, "answer": HOSTILE, "mu": None, "sigma": None}
    for table in (score_result({"data": [entry]}), rerank_result({"results": [entry]})):
        assert "<script" not in table._repr_html_()
        assert "not scored" in table._repr_html_()


def test_a_decision_without_candidates_has_a_head_only():
    html = result(candidate=None, candidates=None, decision="abstain", answer=None)._repr_html_()
    assert "∅ abstain" in html
    assert "no answer is given" in html
    assert "<table" not in html


def test_long_texts_and_tables_are_cut():
    many = [{"candidate_id": str(i), "generator": "g", "text": "", "answer": "x" * 5000} for i in range(100)]
    html = result(candidates=many)._repr_html_()
    assert "36 more" in html
    assert len(html) < 64 * 800


def test_equal_energies_do_not_divide_by_zero():
    one = {"candidate_id": "c", "generator": "g", "text": "", "mu": 1.0, "sigma": 0.0, "energy": 1.0}
    assert "1 ± 0" in result(candidates=[one])._repr_html_()
