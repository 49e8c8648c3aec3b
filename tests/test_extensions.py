"""Modules of a user: named by the environment or by an entry point, imported once, faults reported by name."""

import numpy as np
import pytest

from raydebm.decision.evidence import terms
from raydebm.decision.evidence.measuring import term_in_words, term_table, terms_about
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.terms import Term, add_term
from raydebm.decision.table import PoolTable
from raydebm.errors import ConfigError
from raydebm.evaluation import selectors as selector_module
from raydebm.evaluation.results.evaluation import selectors_of
from raydebm.evaluation.selectors import Selector, add_selectors, uniform
from raydebm.extensions import load_extensions
from raydebm.testing import labelled_pool, measured, scored_candidate


@pytest.fixture
def extensions(tmp_path, monkeypatch):
    """Writes modules and names them; what they add is forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    load_extensions.cache_clear()

    def write(**modules):
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.setenv("RAYDEBM_EXTENSIONS", ", ".join(modules))

    yield write
    load_extensions.cache_clear()


@pytest.fixture
def added_terms():
    before = dict(terms.ADDED_TERMS)
    yield
    terms.ADDED_TERMS.clear()
    terms.ADDED_TERMS.update(before)


def test_every_named_module_is_imported(extensions):
    extensions(house_one="", house_two="")

    assert load_extensions()[-2:] == ("house_one", "house_two")


def test_a_module_that_cannot_be_imported_is_named_with_what_named_it(extensions):
    extensions(broken_house="import absent_module")

    with pytest.raises(ConfigError, match="extension 'broken_house', named by RAYDEBM_EXTENSIONS, cannot be imported"):
        term_table()


def test_an_installed_package_names_its_module_by_an_entry_point(extensions, tmp_path, monkeypatch):
    (tmp_path / "pointed_house.py").write_text("")
    facts = tmp_path / "pointed_house-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pointed-house\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[raydebm.extensions]\nhouse = pointed_house\n")
    monkeypatch.delenv("RAYDEBM_EXTENSIONS", raising=False)

    assert "pointed_house" in load_extensions()


def constant(name, *, value=1.0, **options):
    def measure(inputs):
        return np.full(inputs.table.num_pools if options.get("about") == "none" else inputs.table.num_clusters, value)

    return Term(name=name, words=f"words of {name}", measure=measure, **options)


def test_an_added_term_follows_the_built_in_ones(added_terms):
    add_term(constant("house"))
    add_term(constant("crowd", about="none"))

    assert [term.name for term in terms_about("answer")][-1] == "house"
    assert [term.name for term in terms_about("none")][-1] == "crowd"
    assert term_in_words("house") == "words of house"


def test_a_posterior_uses_an_added_term(added_terms):
    """A weight of 2 on a term that is 1 for the right answer and 0 for the other: odds of e^2."""
    add_term(
        Term(
            name="house",
            words="",
            measure=lambda inputs: np.array([float(c.key == "A") for cs in inputs.table.clusters for c in cs]),
        )
    )
    beliefs = Posterior(weights={"house": 2.0}, context_weights={"none": -50.0}).beliefs(
        [scored_candidate("A"), scored_candidate("B")]
    )

    assert beliefs[0].cluster.key == "A"
    assert beliefs[0].probability == pytest.approx(np.e**2 / (1 + np.e**2), abs=1e-5)


def test_two_terms_of_one_name_are_refused(added_terms):
    add_term(constant("house"))

    with pytest.raises(ConfigError, match="term of evidence 'house' already exists"):
        add_term(constant("house"))


def test_a_term_under_the_name_of_a_built_in_one_is_refused(added_terms):
    add_term(constant("votes"))

    with pytest.raises(ConfigError, match="term of evidence 'votes' is built in"):
        term_table()


def test_a_term_of_the_wrong_shape_is_named(added_terms):
    add_term(Term(name="house", words="", measure=lambda inputs: np.zeros(3)))

    with pytest.raises(ConfigError, match=r"'house' must be one number per answer, shape \(2,\); got \(3,\)"):
        Posterior(weights={"house": 1.0}, context_weights={}).beliefs([scored_candidate("A"), scored_candidate("B")])


def test_a_policy_with_a_term_that_no_module_adds_says_where_to_name_it():
    with pytest.raises(ConfigError, match=r"unknown terms of evidence: house.*RAYDEBM_EXTENSIONS"):
        Posterior(weights={"house": 1.0}, context_weights={})


def test_a_term_about_none_has_one_value():
    assert measured(constant("crowd", about="none", value=3.0), [scored_candidate("A")]) == 3.0


def test_two_selectors_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(selector_module, "_ADDED", [])
    add_selectors(
        lambda pools, validation: [
            Selector(name="random", group="baseline", description="", weights=lambda pools: uniform(pools.present))
        ]
    )

    pools = labelled_pool(scored_candidate("A"), right=["A"])

    with pytest.raises(ConfigError, match="more than one selector 'random'"):
        selectors_of(pools, lambda_=1.0, adapters=(), validation=PoolTable.of(()))
