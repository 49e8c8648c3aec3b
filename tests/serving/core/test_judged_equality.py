"""A generator says which short answers to a general question mean the same: within limits, and never at its risk."""

import json
from functools import partial

import pytest
from two_runs import UNLIKE_THEM, write_second_run

from raydebm.decision.evidence.equality import INSTRUCTIONS
from raydebm.decisions.reader import DecisionReader
from raydebm.decisions.writer import DecisionWriter
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.serving.api.application import create_app
from raydebm.serving.api.operations.live import LiveMeter
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import EqualityArgs, GeneralArgs
from raydebm.serving.settings.gateway import load_gateway
from raydebm.serving.spending.ledger import Ledger

ANSWERS = {"ada": "#### NYC", "bo": "#### New York City"}
PRICES = {"usd_per_million_prompt_tokens": 0.0, "usd_per_million_completion_tokens": 1_000_000.0}
"""A dollar per token of the completion."""


def is_comparison(request):
    return request.messages[0]["content"] == INSTRUCTIONS


def says(verdict, answers=ANSWERS):
    """What the generators write: ada and bo their answers, and the judge its verdict."""
    return lambda request: verdict if is_comparison(request) else answers[request.generator]


@pytest.fixture
def gateway(two_runs):
    def load(judge="ada", *, service=None, **limits):
        return load_gateway(
            two_runs(general=GeneralArgs(equality=EqualityArgs(judge=judge, **limits)), **(service or {}))
        )

    return load


@pytest.fixture
def ask(client_of, backend):
    """Posts a question of no task; returns the answer, whose service may be given."""

    def post(service, ledger=None, **body):
        client = client_of(create_app(service, ledger=ledger))
        reply = client.post("/v1/triage", {"problem": UNLIKE_THEM, **body})
        assert reply.status_code == 200, reply.text
        return reply.json()

    return post


@pytest.fixture
def compared(backend):
    return lambda: [request for request in backend.requests if is_comparison(request)]


def test_answers_in_other_words_count_as_one(gateway, ask, script):
    backend = script(says("Same: yes"))
    body = ask(TriageService(gateway(), backend))

    assert (body["decision"], [answer["num_candidates"] for answer in body["answers"]]) == ("accept", [4])
    assert body["confidence"] == pytest.approx(0.92, abs=0.005)  # as two models that agree in one wording
    assert body["equality"] == {
        "judge": "ada", "asked": 1, "cached": 0, "failed": 0, "skipped": 0, "cost_usd": 0.5,
        "groups": [["New York City", "NYC"]], "reason": None,
    }  # fmt: skip


def test_without_a_judge_they_are_two_answers(two_runs, ask, script):
    body = ask(TriageService(load_gateway(two_runs(general=GeneralArgs())), script(says("Same: yes"))))
    assert (body["decision"], body["equality"], len(body["answers"])) == ("abstain", None, 2)


def test_the_judge_sees_neither_authors_nor_counts(gateway, ask, script, compared):
    ask(TriageService(gateway("bo"), script(says("Same: no"))))
    [request] = compared()
    text = json.dumps([dict(message) for message in request.messages])
    assert (request.generator, request.sampling.temperature) == ("bo", 0.0)
    assert "NYC" in text
    assert not any(word in text for word in ('"ada"', "ada wrote", "bo wrote", "candidates"))


def test_its_calls_are_part_of_usage_and_cost_and_of_no_generators_counts(gateway, ask, script):
    body = ask(TriageService(gateway(), script(says("Same: no"))))
    assert (body["cost_usd"], body["usage"]["total_tokens"]) == (2.5, 75)  # four candidates and one comparison
    assert [generator["asked"] for generator in body["generators"]] == [2, 2]


def test_its_calls_are_no_candidates_of_the_live_figures(gateway, ask, script):
    meter = LiveMeter()
    ask(TriageService(gateway(), script(says("Same: no")), meter=meter))

    by_name = {each.generator: each for each in meter.figures(900).generators}
    assert (by_name["ada"].written, by_name["ada"].prompt_tokens, by_name["ada"].cost_usd) == (2, 30, 1.5)


def test_a_comparison_is_paid_for_once(gateway, ask, script, compared):
    service = TriageService(gateway(), script(says("Same: yes")))
    ask(service)
    again = ask(service)
    assert (len(compared()), again["equality"]["cached"], again["equality"]["asked"]) == (1, 1, 0)
    assert again["decision"] == "accept"


def test_a_fresh_request_compares_anew(gateway, ask, script, compared):
    service = TriageService(gateway(), script(says("Same: yes")))
    ask(service)
    assert (ask(service, fresh=True)["equality"]["asked"], len(compared())) == (1, 2)


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (None, "HTTP 500"),
        ("Perhaps.", "a reply of the judge says neither yes nor no"),
        (OSError("connection refused"), "connection refused"),
    ],
)
def test_a_judge_that_fails_leaves_answers_apart_and_the_answer_says_so(gateway, ask, script, verdict, reason):
    body = ask(TriageService(gateway(), script(says(verdict))))
    assert (body["decision"], body["equality"]["failed"], body["equality"]["groups"]) == ("abstain", 1, [])
    assert body["equality"]["reason"] == reason


def test_a_failed_comparison_is_not_remembered(gateway, ask, script):
    service = TriageService(gateway(), script(says("Perhaps.")))
    ask(service)
    script(says("Same: yes"))
    assert ask(service)["decision"] == "accept"


def test_a_failed_comparison_is_made_again_after_the_next_pass_and_its_reply_counts(gateway, ask, script, compared):
    def write(request):
        if not is_comparison(request):
            return ANSWERS[request.generator]
        return "Perhaps." if len(compared()) == 1 else "Same: yes"

    body = ask(TriageService(gateway(service={"limits": {"request": {"max_passes": 2}}}), script(write)), max_passes=2)

    assert (body["num_passes"], body["decision"]) == (2, "accept")
    facts = body["equality"]
    assert (facts["asked"], facts["failed"], facts["cost_usd"]) == (2, 1, 1.0)
    assert facts["groups"] == [["NYC", "New York City"]]  # ada wrote pass 2, so hers is the more frequent wording


def test_no_more_pairs_are_compared_than_the_operator_allows(gateway, ask, script, compared):
    script(
        lambda request: "Same: no" if is_comparison(request) else f"#### town {request.generator}{request.seed % 97}"
    )
    body = ask(TriageService(gateway(max_calls=2), script()))
    assert (len(compared()), body["equality"]["asked"], body["equality"]["skipped"]) == (2, 2, 4)
    assert "general.equality.max_calls" in body["equality"]["reason"]


# ---- money -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def priced(write_run, recipe, gateway, tmp_path):
    """A comparison of at most 10 tokens may cost 10 dollars, and costs half of one."""
    dear = {**recipe, "generators": [{**each, **PRICES} for each in recipe["generators"]]}
    write_run(dear)
    write_second_run(tmp_path / "second", dear)
    return partial(gateway, max_tokens=10)


def test_what_may_cost_too_much_is_not_compared(priced, ask, script, compared):
    body = ask(TriageService(priced(max_usd=9.0), script(says("Same: yes"))))
    assert (compared(), body["equality"]["skipped"], body["decision"]) == ([], 1, "abstain")
    assert "money" in body["equality"]["reason"]


def test_the_requests_own_money_counts_too(priced, ask, script):
    """Of 258 dollars the candidates cost two, and a comparison of at most 300 tokens may cost 300."""
    service = TriageService(priced(max_tokens=300), script(says("Same: yes")))
    assert ask(service, max_usd=258.0)["equality"]["skipped"] == 1
    assert ask(service)["equality"]["asked"] == 1


def test_comparisons_are_held_and_settled_below_the_days_ceiling(priced, ask, script, tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    limits = {"limits": {"per_day": {"candidates": 5, "usd": 10_000.0}}}
    bundle = priced(service=limits)
    body = ask(TriageService(bundle, script(says("Same: yes"))), ledger)
    assert (body["equality"]["asked"], ledger.spent("service").candidates) == (1, 5)
    assert ledger.spent("service").nano_usd == 2_500_000_000


def test_where_the_day_is_spent_answers_are_compared_by_their_words(priced, ask, script, tmp_path, compared):
    limits = {"limits": {"per_day": {"candidates": 4}}}
    body = ask(
        TriageService(priced(service=limits), script(says("Same: yes"))), Ledger(str(tmp_path / "ledger.sqlite"))
    )
    assert (body["decision"], body["equality"]["skipped"], compared()) == ("abstain", 1, [])
    assert "day's ceilings" in body["equality"]["reason"]


# ---- settings and storage --------------------------------------------------------------------------------------------


def test_a_judge_that_is_not_served_is_refused(gateway):
    with pytest.raises(UnknownNameError, match="claude"):
        gateway("claude")


def test_money_cannot_be_limited_without_the_judges_prices(gateway):
    with pytest.raises(ConfigError, match=r"general\.equality: max_usd needs the prices"):
        gateway(max_usd=1.0)


def test_the_stored_decision_has_the_groups_and_the_money(gateway, ask, script, tmp_path):
    writer = DecisionWriter(str(tmp_path / "records"))
    ask(TriageService(gateway(), script(says("Same: yes")), records=writer))
    writer.close()

    reader = DecisionReader(str(tmp_path / "records"))
    [row] = reader.page().rows
    record = reader.get(row["record_id"])
    assert (row["cost_usd"], row["num_candidates"], row["num_failed"]) == (2.5, 4, 0)
    assert record.request["equality"]["groups"] == [["New York City", "NYC"]]
    assert len({scored.report.vote_key for scored in record.outcome.pool}) == 1
