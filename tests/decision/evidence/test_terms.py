import math
from dataclasses import replace

import numpy as np
import pytest
from decision_pools import scored

from raydebm.decision.evidence.built_in_terms import CONTEXT, TERMS
from raydebm.decision.evidence.measuring import evidence_of
from raydebm.decision.evidence.terms import PLAIN, Author, Reference, representatives
from raydebm.decision.table import PoolTable
from raydebm.decision.table import clusters_of as grouped

REFERENCE = Reference(
    authors={"g1": Author(skill=1.0, center=1.0, scale=2.0), "g2": Author(skill=-2.0, center=3.0, scale=1.0)},
    default=Author(skill=0.0, center=0.0, scale=1.0),
    lambda_=2.0,
)
POOL = [
    scored("a1", "A", (0.0, 2.0), author="g1"),
    scored("a2", "A", (2.0, 4.0), author="g2"),
    scored("b", "B", (4.0, 1.0), author="g1", penalty=1.0),
    scored("u", None, (9.0, 9.0), author="g2"),
]
"""z is 0, 0 and 0.75 by author; E is 1, 3 and 4.5."""


def measured(pool, reference=PLAIN):
    evidence = evidence_of(PoolTable.of([pool]), reference)
    return dict(zip(TERMS, evidence.terms.T, strict=True)), dict(zip(CONTEXT, evidence.context[0], strict=True))


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("votes", [math.log(2 / 3), math.log(1 / 3)]),
        ("authors", [1.5, 0.5]),  # half of g1 and all of g2; the other half of g1
        ("skill", [0.5 * 1 - 2, 0.5 * 1]),
        ("energy", [0.25 - 0, 0.25 - 0.75]),
        ("penalty", [0.0, -1.0]),
    ],
)
def test_term_of_each_cluster(term, expected):
    assert measured(POOL, REFERENCE)[0][term] == pytest.approx(expected)


def test_terms_of_none():
    _, context = measured(POOL, REFERENCE)

    assert (context["none"], context["unparsed"]) == (1.0, 0.25)


LENGTHS = Reference(
    authors={
        "g": Author(skill=0.0, center=0.0, scale=1.0, length_center=math.log(2), length_scale=math.log(2)),
        "wordy": Author(skill=0.0, center=0.0, scale=1.0, length_center=math.log(8), length_scale=math.log(2)),
    },
    default=Author(skill=0.0, center=0.0, scale=1.0),
    lambda_=1.0,
)
"""1, 3, 7 and 15 characters are 0, 1, 2 and 3 standard deviations above the mean of g; 15 are one above wordy's."""


def test_length_is_measured_within_authors():
    pool = [
        scored("a1", "A", text="x"),
        scored("a2", "A", text="x" * 15, author="wordy"),
        scored("b", "B", text="x" * 7),
    ]

    terms, context = measured(pool, LENGTHS)

    assert terms["length"] == pytest.approx([1 - 0.5, 1 - 2])
    assert context["pool_length"] == pytest.approx(1.0)


def test_without_statistics_of_authors_nothing_is_standardised():
    """Energies 1 and 3, and 1 and 3 characters; a score as it is."""
    pool = [scored("a", "A", (1.0,), text="x"), scored("b", "B", (3.0,), text="xxx")]

    terms, context = measured(pool)

    assert terms["energy"] == pytest.approx([1.0, -1.0])
    assert context["pool_length"] == pytest.approx((math.log(2) + math.log(4)) / 2)
    read = [with_scores(one, reader=score) for one, score in zip(pool, (0.5, 1.5), strict=True)]
    assert evidence_of(PoolTable.of([read]), PLAIN).context_term("pool_score:reader") == pytest.approx([1.0])


def test_skills_by_row_replace_the_references():
    table = PoolTable.of([POOL])

    evidence = evidence_of(table, REFERENCE, skills=np.array([3.0, 5.0, 7.0]))

    assert evidence.terms[:, TERMS.index("skill")] == pytest.approx([0.5 * 3 + 5, 0.5 * 7])


def test_outlying_energies_and_penalties_are_cut():
    pool = [scored("a", "A", (-1e9,), penalty=1e12), scored("b", "B", (1e9,))]

    terms, _ = measured(pool)

    assert terms["energy"] == pytest.approx([5.0, -5.0])
    assert terms["penalty"].tolist() == [-10.0, 0.0]


def test_a_pool_without_energies_has_no_energy_term():
    assert np.isnan(measured([scored("a", "A"), scored("b", "B")])[0]["energy"]).all()


def test_candidates_without_text_answer_or_check_are_in_no_cluster():
    pool = [
        scored("failed", "A", text=None),
        scored("unparsed", None),
        scored("unchecked", "A", penalty=math.inf),
        scored("fine", "A"),
    ]

    (cluster,) = grouped(pool)

    assert cluster.rows == (3,)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"name": "z", "members": (5.0,), "proof": True}, {"name": "a", "members": (1.0,)}),
        ({"name": "z", "members": (5.0,)}, {"name": "a", "members": (1.0,), "proof": False}),
        ({"name": "z", "members": (5.0,), "proof": True, "author": "g2"}, {"name": "a", "author": "g1"}),
        ({"name": "z", "members": (5.0,), "author": "g1"}, {"name": "a", "members": (1.0,), "author": "g2"}),
        ({"name": "z", "author": "stranger"}, {"name": "a", "members": (1.0,), "author": "g2"}),
        ({"name": "z", "members": (1.0,)}, {"name": "a", "members": (2.0,)}),
        ({"name": "z", "members": (0.0,), "penalty": 1.0}, {"name": "a", "members": (1.0,)}),
        ({"name": "z", "members": (9.0,)}, {"name": "a"}),
        ({"name": "z"}, {"name": "a", "penalty": 1.0}),
        ({"name": "z"}, {"name": "a", "pass_index": 2}),
        ({"name": "a"}, {"name": "z"}),
    ],
    ids=[
        "proven",
        "not-refuted",
        "proven-by-the-worse-author",
        "better-author",
        "author-of-unknown-skill",
        "energy",
        "mu-at-equal-E",
        "scored",
        "penalty",
        "earlier-pass",
        "smaller-id",
    ],
)
def test_the_representative_of_a_cluster(better, worse):
    pool = [scored(answer="A", **worse), scored(answer="A", **better)]

    reference = replace(REFERENCE, lambda_=1.0)
    for order in (pool, pool[::-1]):
        table = PoolTable.of([order])
        (row,) = representatives(table, reference)
        assert table.candidates[row] is pool[1]


def test_each_cluster_of_each_pool_has_its_representative():
    other = [scored("c", "C"), scored("d2", "D", (2.0,)), scored("d1", "D", (1.0,))]
    table = PoolTable.of([POOL, [], other])
    names = [table.candidates[row].candidate.candidate_id for row in representatives(table, REFERENCE)]
    assert names == ["a1", "b", "c", "d1"]
    assert representatives(PoolTable.of([[]]), REFERENCE).tolist() == []


@pytest.mark.parametrize(
    ("proofs", "expected"),
    [([True, False], True), ([None, True], True), ([None, False], None), ([False, False], False), ([None], None)],
)
def test_the_proof_of_a_cluster(proofs, expected):
    pool = [scored(f"c{index}", "A", proof=proof) for index, proof in enumerate(proofs)]

    assert grouped(pool)[0].proof is expected


def test_pools_beside_each_other_do_not_touch():
    other = [scored("x", "A", (7.0, 7.0), author="g2"), scored("y", "C", (1.0, 0.0), author="g3")]
    alone = [measured(pool, REFERENCE) for pool in (POOL, other)]

    evidence = evidence_of(PoolTable.of([POOL, [], other]), REFERENCE)

    assert evidence.terms == pytest.approx(
        np.vstack([np.column_stack([terms[name] for name in TERMS]) for terms, _ in alone]), nan_ok=True
    )
    assert evidence.context[[0, 2]] == pytest.approx(
        np.array([[context[name] for name in CONTEXT] for _, context in alone]), nan_ok=True
    )


@pytest.mark.parametrize("table", [[], [[]], [[scored("u", None)]], [[scored("f", None, text=None)]]])
def test_nothing_to_measure_gives_empty_evidence(table):
    evidence = evidence_of(PoolTable.of(table), PLAIN)

    assert evidence.terms.shape == (0, len(TERMS))
    assert evidence.context.shape == (len(table), len(CONTEXT))


SCORED = Reference(
    authors={"g1": Author(skill=0.0, center=0.0, scale=1.0, scores={"reader": (-1.0, 0.5)})},
    default=Author(skill=0.0, center=0.0, scale=1.0, scores={"reader": (-2.0, 1.0)}),
    lambda_=1.0,
)


def with_scores(candidate, **scores):
    return replace(candidate, scores=scores)


def test_a_baselines_score_is_measured_within_authors():
    pool = [
        with_scores(scored("a1", "A", author="g1"), reader=-0.5),  # z 1
        with_scores(scored("a2", "A", author="new"), reader=-2.0),  # z 0, by all authors' norm
        with_scores(scored("b", "B", author="new"), reader=-3.0),  # z -1
    ]

    evidence = evidence_of(PoolTable.of([pool]), SCORED)

    assert evidence.term("score:reader") == pytest.approx([0.5 - 0, -1 - 0])
    assert evidence.context_term("pool_score:reader") == pytest.approx([0.0])


def test_a_candidate_without_a_score_is_left_out_of_the_means():
    pool = [
        with_scores(scored("a1", "A", author="new"), reader=-1.0),
        scored("a2", "A", author="new"),
        scored("b", "B", author="new"),
    ]

    term = evidence_of(PoolTable.of([pool]), SCORED).term("score:reader")

    assert term[0] == pytest.approx(0.0)
    assert math.isnan(term[1])


def test_a_generators_own_log_probabilities_are_scores():
    sure = scored("a1", "A")
    sure = replace(sure, candidate=replace(sure.candidate, logprob=-0.1, worst_logprob=-2.0))

    scores = PoolTable.of([[with_scores(sure, reader=0.5), scored("b", "B")]]).evidence_scores

    assert {name: values[0] for name, values in scores.items()} == {
        "own_logprob": -0.1, "own_worst_logprob": -2.0, "reader": 0.5
    }  # fmt: skip
    assert all(np.isnan(values[1]) for values in scores.values())
