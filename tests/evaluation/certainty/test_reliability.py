import numpy as np
from hand_made import table_of

from raydebm.evaluation.certainty.reliability import fitted, reliability, sigma_bins, trust
from raydebm.evaluation.stats.intervals import Bootstrap


def bootstrap(n):
    return Bootstrap.of(n, num_bootstrap=100, seed=0)


def test_sigma_bins_hold_equally_many_problems():
    bins = sigma_bins(np.arange(20.0), np.repeat([1.0, 0.0], 10), bootstrap(20))

    assert [b.accuracy.n for b in bins] == [2] * 10
    assert (bins[0].accuracy.value, bins[-1].accuracy.value) == (1.0, 0.0)


def made_up(n, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 2))
    return features, (rng.random(n) < 1 / (1 + np.exp(-2 * features[:, 0]))).astype(float)


def test_a_fit_on_validation_is_calibrated_on_test():
    test, validation = made_up(2000, 0), made_up(2000, 1)

    predicted = fitted(test, validation, seed=0)

    assert reliability("p", "", predicted, test[1], bootstrap(2000)).ece.value < 0.05


def test_cross_fitting_never_predicts_a_problem_that_it_saw():
    """Features are unique names of problems; a fit that remembers would be always right, one that may not is not."""
    rng = np.random.default_rng(0)
    features, correct = np.arange(100.0)[:, None], rng.integers(0, 2, 100).astype(float)

    def remembering(seen, outcomes, asked):
        memory = dict(zip(seen[:, 0], outcomes, strict=True))
        return np.array([memory.get(x, 0.25) for x in asked[:, 0]])

    assert (fitted((features, correct), None, seed=0, fit=remembering) == 0.25).all()


def test_too_few_mistakes_to_fit_on_give_no_probability():
    features = np.random.default_rng(0).normal(size=(30, 2))
    correct = np.array([0.0] * 3 + [1.0] * 27)

    assert fitted((features, correct), None, seed=0) is None


def leaning_pools(make_pool, n, seed):
    """Easy problems have a clear winner and small spread, hard ones neither."""
    rng = np.random.default_rng(seed)
    pools = []
    for index in range(n):
        hard = index % 2
        rows = []
        for _ in range(6):
            correct = int(rng.random() < (0.3 if hard else 0.8))
            mu = (0.3 if hard else 2.0) * (1 - correct) + rng.normal(0, 0.5)
            spread = 1.0 if hard else 0.1
            rows.append(
                (correct, {"members": (mu - spread, mu + spread * rng.random()), "key": "r" if correct else "w"})
            )
        pools.append(make_pool(*rows, problem_id=f"{seed}-{index}"))
    return pools


def test_trust_finds_the_signal_that_tells(make_pool):
    test, validation = (table_of(leaning_pools(make_pool, 120, seed)) for seed in (0, 1))

    assessment = trust(test, validation, lambda_=1.0, bootstrap=bootstrap(120), seed=0)

    by_name = {row.name: row for row in assessment.signals}
    assert by_name["sigma"].auroc.value > 0.7
    assert by_name["learned certainty"].gain_at_80.value > 0
    assert assessment.fitted_on == "the picks of validation problems"
    assert {row.name.split(" ")[0] for row in assessment.reliabilities} == {"energy-weighted", "vote", "logistic"}


def test_without_validation_the_fits_say_that_they_are_cross_fitted(make_pool):
    assessment = trust(
        table_of(leaning_pools(make_pool, 120, 0)), table_of([]), lambda_=1.0, bootstrap=bootstrap(120), seed=0
    )

    assert "5 folds" in assessment.fitted_on
    assert any("other folds" in row.name for row in assessment.reliabilities)
