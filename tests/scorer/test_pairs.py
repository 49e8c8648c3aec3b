"""Splits, bags and pairs. Pools are written as strings: ``"CCI-"`` is two correct, one incorrect, one unlabeled."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.config import PairsConfig, parse_recipe
from raydebm.errors import ConfigError, PoolError
from raydebm.identity import content_id
from raydebm.records import Candidate, Label, Pair, Problem, Sampling, Verdict
from raydebm.run.tables import SplitProblem
from raydebm.scorer.pairs import (
    PairMaker,
    TrainingGroup,
    bag,
    build_pairs,
    deal_folds,
    held_out,
    out_of_bag,
    split_problems,
    training_groups,
    with_defaults,
)
from raydebm.tasks.base import TaskDefaults

VERDICTS = {"C": Verdict.CORRECT, "I": Verdict.INCORRECT, "-": Verdict.UNLABELED}
ALL = PairsConfig(max_pairs=None)

IDS = st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=40, unique=True)


def made(pools, *, texts=None, scores=None):
    """(candidates, labels) of pools such as {"p": "CI"}; candidate ids are p0, p1, ..."""
    candidates, labels = [], []
    for problem_id, pool in pools.items():
        for index, letter in enumerate(pool):
            name = f"{problem_id}{index}"
            text = (texts or {}).get(name, f"text of {name}")
            candidates.append(Candidate(candidate_id=name, task="t", problem_id=problem_id, generator="g", text=text))
            score = (scores or {}).get(name)
            labels.append(
                Label(candidate_id=name, problem_id=problem_id, verdict=VERDICTS[letter], violation_score=score)
            )
    return candidates, labels


def sides(pairs):
    return {(pair.chosen, pair.rejected) for pair in pairs}


def test_every_correct_meets_every_incorrect_candidate_of_its_problem():
    pairs = build_pairs(*made({"p": "CIC", "q": "IC"}), config=ALL, seed=0)
    assert sides(pairs) == {("p0", "p1"), ("p2", "p1"), ("q1", "q0")}


@pytest.mark.parametrize("pool", ["C-", "-I", "--"])
def test_a_problem_of_one_class_gives_no_pair(pool):
    pairs = build_pairs(*made({"p": pool, "q": "CI"}), config=ALL, seed=0)
    assert sides(pairs) == {("q0", "q1")}


def test_when_nothing_can_be_paired_the_error_counts_why():
    with pytest.raises(
        PoolError,
        match=r"no pairs in 6 problems: all candidates correct in 3, all incorrect in 2, none labeled in 1, "
        r"all scores equal in 0; take more samples",
    ):
        build_pairs(*made({"p": "CC", "q": "C", "r": "C-", "s": "II", "t": "I", "u": "--"}), config=ALL, seed=0)


def test_problems_with_pairs_and_pairs_are_counted():
    maker = PairMaker(PairsConfig(max_pairs=3), seed=0)
    for name, pool in (("p", "CCII"), ("q", "CC"), ("r", "CI")):
        candidates, labels = made({name: pool})
        maker.pairs(name, candidates, {label.candidate_id: label for label in labels})

    assert (maker.num_paired, maker.num_pairs) == (2, 4)


def test_failed_unlabeled_and_greedy_candidates_take_no_part():
    candidates, labels = made({"p": "CICI"})
    candidates[2] = replace(candidates[2], text=None, error="HTTP 500")
    candidates[3] = replace(candidates[3], sampling=Sampling(temperature=0.0))
    assert sides(build_pairs(candidates, labels, config=ALL, seed=0)) == {("p0", "p1")}


def test_a_candidate_without_a_label_takes_no_part():
    candidates, labels = made({"p": "CIC"})
    assert sides(build_pairs(candidates, labels[:2], config=ALL, seed=0)) == {("p0", "p1")}


def test_equal_texts_count_once():
    pools = made({"p": "CCI"}, texts={"p0": "same", "p1": "same"})
    assert sides(build_pairs(*pools, config=ALL, seed=0)) == {("p0", "p2")}


def test_a_text_with_contradicting_labels_is_on_neither_side():
    pools = made({"p": "CICI"}, texts={"p0": "same", "p1": "same"})
    assert sides(build_pairs(*pools, config=ALL, seed=0)) == {("p2", "p3")}


def test_the_cap_holds_for_each_problem():
    pairs = build_pairs(*made({"p": "CCCCCIIIII", "q": "CI"}), config=PairsConfig(max_pairs=16), seed=0)
    assert [sum(pair.problem_id == name for pair in pairs) for name in "pq"] == [16, 1]
    assert len(sides(pairs)) == 17


def test_continuous_tasks_choose_the_best_quarter():
    scores = {f"p{index}": score for index, score in enumerate([0.5, 0.1, 0.9, 0.4, 0.0, 0.3, 0.7, 0.8])}
    pairs = build_pairs(*made({"p": "I" * 8}, scores=scores), config=ALL, seed=0)
    assert sides(pairs) == {(chosen, f"p{rejected}") for chosen in ("p4", "p1") for rejected in (0, 2, 3, 5, 6, 7)}


def test_equal_violation_scores_are_never_paired():
    scores = {"p0": 0.2, "p1": 0.2, "p2": 0.2, "p3": 0.6}
    scores |= {f"p{index}": 0.6 for index in range(4, 8)}
    pairs = build_pairs(*made({"p": "I" * 8}, scores=scores), config=ALL, seed=0)
    assert sides(pairs) == {(chosen, f"p{place}") for chosen in ("p0", "p1") for place in range(3, 8)}


def test_a_continuous_pool_of_equal_scores_is_counted_as_equal():
    with pytest.raises(PoolError, match="all scores equal in 1"):
        build_pairs(*made({"p": "II"}, scores={"p0": 0.2, "p1": 0.2}), config=ALL, seed=0)


def by_authors(candidates, authors):
    """The candidates with these generators, in order."""
    return [replace(candidate, generator=author) for candidate, author in zip(candidates, authors, strict=True)]


def test_within_author_pairs_only_texts_of_one_generator():
    candidates, labels = made({"p": "CIICI"})
    config = PairsConfig(max_pairs=None, within_author=True)
    pairs = build_pairs(by_authors(candidates, "aabba"), labels, config=config, seed=0)
    assert sides(pairs) == {("p0", "p1"), ("p0", "p4"), ("p3", "p2")}


def test_within_author_caps_hold_for_each_author():
    candidates, labels = made({"p": "CCICCI"})
    config = PairsConfig(max_pairs=None, max_correct=1, within_author=True)
    pairs = build_pairs(by_authors(candidates, "aaabbb"), labels, config=config, seed=0)
    assert sorted(pair.rejected for pair in pairs) == ["p2", "p5"]


def test_within_author_chooses_the_best_share_of_each_authors_continuous_labels():
    scores = {"p0": 0.1, "p1": 0.2, "p2": 0.6, "p3": 0.9}
    candidates, labels = made({"p": "IIII"}, scores=scores)
    config = PairsConfig(max_pairs=None, within_author=True)
    assert sides(build_pairs(by_authors(candidates, "aabb"), labels, config=config, seed=0)) == {
        ("p0", "p1"),
        ("p2", "p3"),
    }


def test_within_author_counts_equal_texts_of_two_authors_for_each():
    candidates, labels = made({"p": "CICI"}, texts={"p0": "same", "p2": "same"})
    config = PairsConfig(max_pairs=None, within_author=True)
    pairs = build_pairs(by_authors(candidates, "aabb"), labels, config=config, seed=0)
    assert sides(pairs) == {("p0", "p1"), ("p2", "p3")}


def test_within_author_without_a_pair_says_what_to_do():
    candidates, labels = made({"p": "CI", "q": "CC"})
    with pytest.raises(
        PoolError, match=r"both verdicts but never by one author in 1; sample each generator several times"
    ):
        build_pairs(by_authors(candidates, "abab"), labels, config=PairsConfig(within_author=True), seed=0)


POOLS = st.dictionaries(st.sampled_from("pqrstu"), st.text("CI-", min_size=1, max_size=9), min_size=1)


@given(POOLS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_pairs_never_mix_problems_and_ignore_the_order_of_candidates(pools, shuffler, seed):
    candidates, labels = made({**pools, "z": "CI"})
    config = PairsConfig(max_pairs=4)
    pairs = build_pairs(candidates, labels, config=config, seed=seed)
    verdict = {label.candidate_id: label.verdict for label in labels}
    assert all(pair.chosen[0] == pair.rejected[0] == pair.problem_id for pair in pairs)
    assert all(verdict[pair.chosen] is Verdict.CORRECT for pair in pairs)
    assert all(verdict[pair.rejected] is Verdict.INCORRECT for pair in pairs)
    shuffler.shuffle(candidates)
    shuffler.shuffle(labels)
    assert sides(build_pairs(candidates, labels, config=config, seed=seed)) == sides(pairs)


def distinct(ids):
    """Problems of which no two have the same text, by id."""
    return {name: str([*map(ord, name)]) for name in ids}


TWINS = {f"{name}{n}": text for n in range(50) for name, text in (("p", f"How many? {n}"), ("q", f"how  many? {n}"))}
"""Fifty problems, each twice but for case and whitespace."""


def test_equal_problems_are_on_one_side_of_the_split():
    train, validation = split_problems(TWINS, validation_frac=0.2, seed=0)

    assert (len(train), len(validation)) == (80, 20)
    assert {name[1:] for name in train}.isdisjoint(name[1:] for name in validation)


def test_equal_problems_are_in_a_bag_together():
    drawn = bag(TWINS, bag_frac=0.8, seed=0, adapter="a0")

    assert Counter(name[1:] for name in drawn) == dict.fromkeys({name[1:] for name in drawn}, 2)
    assert len(drawn) == 80


def test_a_problem_without_pairs_was_seen_with_its_equal():
    unseen = out_of_bag(TWINS, [f"p{n}" for n in range(50)], bag_frac=0.5, seed=0, adapters=["a0", "a1"])

    assert {name[1:]: members for name, members in unseen.items() if name[0] == "q"} == {
        name[1:]: members for name, members in unseen.items() if name[0] == "p"
    }


def test_the_split_of_distinct_problems_is_what_it_was():
    """By the digests of id and seed, the smallest first."""
    ids = [f"p{n}" for n in range(10)]

    _, validation = split_problems(distinct(ids), validation_frac=0.3, seed=4)

    assert set(validation) == set(sorted(ids, key=lambda name: content_id("split", 4, name))[:3])


@given(IDS, st.floats(0.01, 0.99), st.integers(0, 5))
def test_no_problem_is_on_both_sides_of_the_split(ids, validation_frac, seed):
    train, validation = split_problems(distinct(ids), validation_frac=validation_frac, seed=seed)
    assert not set(train) & set(validation)
    assert sorted([*train, *validation]) == sorted(ids)
    assert len(validation) == min(max(round(validation_frac * len(ids)), 1), len(ids) - 1)


def test_the_paper_split_of_605_problems():
    train, validation = split_problems(distinct([f"p{n}" for n in range(605)]), validation_frac=0.2, seed=0)
    assert (len(train), len(validation)) == (484, 121)


@given(IDS, st.randoms(use_true_random=False))
def test_the_split_ignores_the_order(ids, shuffler):
    train, _ = split_problems(distinct(ids), validation_frac=0.3, seed=1)
    again = [*ids]
    shuffler.shuffle(again)
    assert set(split_problems(distinct(again), validation_frac=0.3, seed=1)[0]) == set(train)


def test_one_problem_cannot_be_split():
    with pytest.raises(PoolError, match="at least 2 problems with distinct texts, got 1"):
        split_problems({"p": "What?", "q": "what? "}, validation_frac=0.2, seed=0)


@given(IDS, st.floats(0.01, 1.0), st.integers(0, 5))
def test_a_bag_is_the_rounded_share_of_the_problems(ids, bag_frac, seed):
    drawn = bag(distinct(ids), bag_frac=bag_frac, seed=seed, adapter="a0")
    assert len(drawn) == len(set(drawn)) == max(round(bag_frac * len(ids)), 1)
    assert set(drawn) <= set(ids)


def test_adapters_have_bags_of_their_own():
    ids = [f"p{n}" for n in range(100)]
    bags = [frozenset(bag(distinct(ids), bag_frac=0.8, seed=0, adapter=f"a{k}")) for k in range(5)]
    assert len(set(bags)) == 5


def test_out_of_bag_is_what_an_adapter_did_not_train_on():
    with_pairs, without = [f"p{n}" for n in range(40)], [f"q{n}" for n in range(10)]
    adapters = ["a0", "a1", "a2"]

    unseen = out_of_bag(distinct([*without, *with_pairs]), with_pairs, bag_frac=0.8, seed=0, adapters=adapters)

    for position, adapter in enumerate(adapters):
        trained = {
            name for ids in (with_pairs, without) for name in bag(distinct(ids), bag_frac=0.8, seed=0, adapter=adapter)
        }
        left_out = {name for name, members in unseen.items() if members[position]}
        assert left_out == {*with_pairs, *without} - trained
        assert (len(left_out & set(with_pairs)), len(left_out & set(without))) == (8, 2)


def test_a_problem_of_every_bag_is_not_out_of_bag():
    unseen = out_of_bag(distinct(["p", "q"]), ["p", "q"], bag_frac=1.0, seed=0, adapters=["a0", "a1"])
    assert unseen == {}


def test_training_groups_hold_each_text_once():
    candidates, _ = made({"p": "CIC", "q": "CI"})
    pairs = [
        Pair(problem_id="p", chosen="p0", rejected="p1"),
        Pair(problem_id="q", chosen="q0", rejected="q1"),
        Pair(problem_id="p", chosen="p2", rejected="p1"),
    ]
    problems = [Problem(task="t", problem_id=name, prompt=f"prompt of {name}") for name in "qp"]
    assert training_groups(pairs, candidates, problems) == [
        TrainingGroup(
            problem_id="p",
            prompt="prompt of p",
            texts=("text of p0", "text of p1", "text of p2"),
            pairs=((0, 1), (2, 1)),
        ),
        TrainingGroup(problem_id="q", prompt="prompt of q", texts=("text of q0", "text of q1"), pairs=((0, 1),)),
    ]


@pytest.mark.parametrize("name", ["gone", "p0"], ids=["unknown", "without-text"])
def test_a_pair_of_a_candidate_that_cannot_be_read_is_named(name):
    (first, second), _ = made({"p": "CI"})
    candidates = [replace(first, text=None, error="timeout"), second]
    with pytest.raises(PoolError, match=f"pair of problem 'p': candidate '{name}' is missing or empty"):
        training_groups(
            [Pair(problem_id="p", chosen=name, rejected="p1")],
            candidates,
            [Problem(task="t", problem_id="p", prompt="?")],
        )


def test_a_pair_of_an_unknown_problem_is_named():
    with pytest.raises(PoolError, match="problem 'p', which is not among the problems given"):
        training_groups([Pair(problem_id="p", chosen="p0", rejected="p1")], made({"p": "CI"})[0], [])


def with_severities(pools, severities):
    candidates, labels = pools
    return candidates, [replace(label, severity=severities.get(label.candidate_id)) for label in labels]


def test_of_too_many_incorrect_candidates_the_least_severe_are_paired():
    pools = with_severities(made({"p": "CIIII"}), {"p1": 6, "p2": 1, "p3": 5, "p4": 2})
    pairs = build_pairs(*pools, config=PairsConfig(max_pairs=None, max_incorrect=2), seed=0)
    assert sides(pairs) == {("p0", "p2"), ("p0", "p4")}


def test_an_incorrect_candidate_of_unknown_severity_comes_last():
    pools = with_severities(made({"p": "CII"}), {"p2": 7})
    pairs = build_pairs(*pools, config=PairsConfig(max_pairs=None, max_incorrect=1), seed=0)
    assert sides(pairs) == {("p0", "p2")}


def test_the_papers_caps_hold_for_every_problem():
    config = PairsConfig(max_pairs=None, max_correct=8, max_incorrect=24)
    pairs = build_pairs(*made({"p": "C" * 20 + "I" * 40, "q": "C" * 3 + "I" * 30}), config=config, seed=0)
    assert len(pairs) == 8 * 24 + 3 * 24


def test_caps_are_drawn_by_seed_whatever_the_order():
    candidates, labels = made({"p": "C" * 9 + "I"})
    config = PairsConfig(max_pairs=None, max_correct=3)
    drawn = [
        sides(build_pairs(order, labels, config=config, seed=seed))
        for seed, order in [(0, candidates), (0, candidates[::-1]), (1, candidates)]
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_continuous_labels_are_not_capped():
    scores = {"p0": 0.1, "p1": 0.5, "p2": 0.6, "p3": 0.7}
    config = PairsConfig(max_pairs=None, max_incorrect=1)
    assert len(build_pairs(*made({"p": "IIII"}, scores=scores), config=config, seed=0)) == 3


def test_a_tasks_limits_hold_where_the_recipe_has_none():
    defaults = TaskDefaults(max_length=64, batch_size=1, patience=1, max_correct=8, max_incorrect=24)
    limits = with_defaults(PairsConfig(max_incorrect=3), defaults)
    assert (limits.max_correct, limits.max_incorrect) == (8, 3)


# ---- folds -----------------------------------------------------------------------------------------------------------


def sizes_of(fold_of, count):
    return sorted(list(fold_of.values()).count(fold) for fold in range(count))


def test_folds_of_distinct_texts_differ_in_size_by_one_at_most():
    fold_of = deal_folds({f"p{index}": f"text {index}" for index in range(17)}, count=5, seed=0)

    assert sizes_of(fold_of, 5) == [3, 3, 3, 4, 4]


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=4), min_size=6), st.randoms())
def test_the_order_of_the_problems_does_not_change_the_folds(prompts, rng):
    count = min(3, len({" ".join(text.split()).casefold() for text in prompts.values()}))
    if count < 2:
        return
    shuffled = list(prompts.items())
    rng.shuffle(shuffled)

    assert deal_folds(dict(shuffled), count=count, seed=1) == deal_folds(prompts, count=count, seed=1)


def test_another_seed_deals_anew():
    prompts = {f"p{index}": f"text {index}" for index in range(20)}

    assert deal_folds(prompts, count=2, seed=0) != deal_folds(prompts, count=2, seed=1)


def test_problems_with_the_same_text_share_a_fold():
    prompts = {f"p{index}": f"text {index}" for index in range(9)}
    prompts |= {"twin": "Text  3\n", "third": "TEXT 3"}

    for seed in range(10):
        fold_of = deal_folds(prompts, count=5, seed=seed)
        assert fold_of["p3"] == fold_of["twin"] == fold_of["third"]
        # The group of three fills one fold; the other eight problems are dealt to the other four.
        assert sizes_of(fold_of, 5) == [2, 2, 2, 2, 3]


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_folds_are_refused(count):
    with pytest.raises(ConfigError, match=f"at least 2 folds are needed, got {count}"):
        deal_folds({"p": "a", "q": "b"}, count=count, seed=0)


def test_more_folds_than_distinct_texts_are_refused():
    with pytest.raises(ConfigError, match=r"3 folds need .* there are 2 \(of 3 problems\); ask for at most 2"):
        deal_folds({"p": "a", "q": "b", "r": "A"}, count=3, seed=0)


def rows(**splits):
    return [
        SplitProblem(problem=Problem(task="gsm8k", problem_id=name, prompt=f"text of {name}"), split=split)
        for split, names in splits.items()
        for name in names
    ]


def test_without_folds_the_problems_of_the_test_source_are_held_out():
    assert held_out(rows(train="abc", test="de"), recipe_with(None)) == {"d", "e"}


def test_each_problem_of_both_sources_is_held_out_by_exactly_one_fold():
    table = rows(train="abcdefg", test="hijk")
    parts = [held_out(table, recipe_with([index, 3])) for index in range(3)]

    assert sorted(name for part in parts for name in part) == list("abcdefghijk")
    assert sorted(map(len, parts)) == [3, 4, 4]


def test_the_folds_follow_from_the_seed_of_the_run_and_not_from_that_of_the_training():
    table, fold = rows(train="abcdefgh"), [0, 2]

    assert held_out(table, recipe_with(fold, pairs_seed=5)) == held_out(table, recipe_with(fold))
    assert held_out(table, recipe_with(fold, seed=2)) != held_out(table, recipe_with(fold, seed=1))


def recipe_with(fold, *, seed=0, pairs_seed=None):
    return parse_recipe(
        {
            "name": "r",
            "seed": seed,
            "task": {"name": "gsm8k"},
            "generators": [{"kind": "openai", "name": "g", "model": "m"}],
            "pairs": {"fold": fold, "seed": pairs_seed},
        }
    )
