import math

import numpy as np

from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.results.evaluating import selectors_of
from raydebm.evaluation.selectors.learned_vote import learned_votes
from raydebm.evaluation.selectors.selector import values_of


def expert_pools(make_pool, n, seed, *, energies=False):
    """Generator g is right nine times in ten and stands alone; h and i are usually wrong, and often together."""
    rng = np.random.default_rng(seed)
    pools = []
    for problem in range(n):
        rows = []
        for generator, chance in (("g", 0.9), ("h", 0.2), ("i", 0.2)):
            correct = int(rng.random() < chance)
            # Each generator has its own level of mu; only the distance from it tells.
            level = {"g": 5.0, "h": 0.0, "i": -5.0}[generator]
            mu = level + (0.0 if correct else 2.0) + 0.1 * rng.normal()
            rows.append(
                (
                    correct,
                    {
                        "generator": generator,
                        "key": "right" if correct else "wrong",
                        "members": (mu, mu) if energies else None,
                    },
                )
            )
        pools.append(make_pool(*rows, problem_id=f"{seed}-{problem}"))
    return pools


def accuracy(selector, pools):
    return values_of(selector, Stack.of(pools)).correct.mean()


def test_an_expert_outvotes_two_that_are_usually_wrong(make_pool):
    test, validation = expert_pools(make_pool, 60, 0), expert_pools(make_pool, 60, 1)

    (vote,) = learned_votes(Stack.of(validation))

    assert vote.name == "generator-weighted vote"
    assert accuracy(vote, test) == np.mean([pool.correct[0] for pool in test])


def test_the_learned_vote_reads_energies_relative_to_their_generator(make_pool):
    """Nearly everything solvable is solved, though mu itself is highest for the best generator."""
    test, validation = (expert_pools(make_pool, 80, seed, energies=True) for seed in (0, 1))

    vote = {selector.name: selector for selector in learned_votes(Stack.of(validation))}["learned vote"]

    solvable = np.mean([pool.correct.max() for pool in test])
    assert accuracy(vote, test) > solvable - 0.02
    assert accuracy(vote, test) > np.mean([pool.correct[0] for pool in test])


def test_the_vote_by_generators_learns_from_labelled_problems_without_energies(make_pool):
    """Validation has one problem and says nothing; of 60 labelled problems g is the expert."""
    labelled = expert_pools(make_pool, 60, 1)
    validation = [make_pool((1, {"generator": "g"}), (1, {"generator": "h"}))]

    (vote,) = learned_votes(Stack.of(validation), Stack.of(labelled))

    test = expert_pools(make_pool, 60, 0)
    assert accuracy(vote, test) == np.mean([pool.correct[0] for pool in test])
    assert "fitted on labelled problems outside the test" in vote.description


def test_the_best_generator_is_chosen_on_all_labelled_problems(make_pool):
    """h is right on the one validation problem, g on the other two that are labelled."""

    def pool(name, right):
        rows = [(int(writer == right), {"generator": writer, "members": (0.0, 0.0)}) for writer in "gh"]
        return make_pool(*rows, problem_id=name)

    validation, labelled = [pool("v", "h")], [pool("v", "h"), pool("p", "g"), pool("q", "g")]
    options = {"lambda_": 1.0, "adapters": ("a0", "a1"), "validation": Stack.of(validation)}

    chosen = {
        selector.name: selector.description
        for selector in selectors_of(Stack.of([pool("t", "g")]), labelled=Stack.of(labelled), **options)
    }

    assert "generator g, chosen on labelled problems outside the test" in chosen["best generator"]


def test_an_unknown_generator_votes_as_an_average_one(make_pool):
    stranger = make_pool((1, {"generator": "new", "key": "x"}), (0, {"generator": "h", "key": "y"}))

    (vote,) = learned_votes(Stack.of(expert_pools(make_pool, 30, 1)))

    assert values_of(vote, Stack.of([stranger])).correct.tolist() == [1.0]


def test_validation_of_one_class_or_none_teaches_nothing(make_pool):
    assert learned_votes(Stack.of([])) == []
    assert learned_votes(Stack.of([make_pool((1, {"generator": "g"}), (1, {"generator": "h"}))])) == []


def test_what_cannot_vote_teaches_nothing_about_votes(make_pool):
    """Among answers a broken constraint means wrong, though most without one are unparsed and wrong, too."""
    unparsed = (0, {"penalty": math.inf, "members": (0.0, 0.0)})
    clean, broken = ({"penalty": penalty, "members": (0.0, 0.0)} for penalty in (0.0, 1.0))
    validation = [
        make_pool(
            (int(index != 0), {**clean, "key": "x"}),
            (int(index < 4), {**broken, "key": "y"}),
            *[unparsed] * 4,
            problem_id=f"v{index}",
        )
        for index in range(10)
    ]
    test = make_pool((1, {**clean, "key": "x"}), (0, {**broken, "key": "y"}), problem_id="t")

    vote = {selector.name: selector for selector in learned_votes(Stack.of(validation))}["learned vote"]

    assert values_of(vote, Stack.of([test])).correct.tolist() == [1.0]


def test_a_generator_counts_by_the_answers_with_which_it_votes(make_pool):
    """g gives an answer once in two and is right then; h is right three times in five."""
    unparsed = (0, {"generator": "g", "penalty": math.inf})
    validation = [
        make_pool(
            unparsed if index % 2 else (1, {"generator": "g", "key": "x"}),
            (int(index % 5 < 3), {"generator": "h", "key": "y"}),
            problem_id=f"v{index}",
        )
        for index in range(20)
    ]
    test = make_pool((1, {"generator": "g", "key": "x"}), (0, {"generator": "h", "key": "y"}), problem_id="t")

    (vote,) = learned_votes(Stack.of(validation))

    assert values_of(vote, Stack.of([test])).correct.tolist() == [1.0]
