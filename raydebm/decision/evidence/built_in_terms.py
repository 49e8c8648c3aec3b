"""Built-in terms of evidence.

Terms of a cluster a with n_a of the pool's N candidates in clusters, author g(i) of candidate i, energies mu_i, and
z_i = (mu_i - center_g) / scale_g, the energy standardised within its author, so that the author has an effect only
through ``authors`` and ``skill``:

===============  ======================================================================================
``votes``        log(n_a / N), the log share of candidates (majority vote)
``authors``      sum over authors g of f_ga, the share of g's candidates that are in a: one vote per author
``skill``        sum over authors of f_ga logit q_g, with q_g the author's skill. Together with ``authors`` it is
                 the one-coin naive Bayes vote, in which the weight of ``authors`` is log 1/c, c the probability that
                 wrong answers coincide; without ``authors``, the vote fails for q_g < 1/2. If problems have kinds,
                 logit q_g is the author's skill in this kind minus the level of the kind, which all authors share
``energy``       mean of z over the pool minus the lowest z in a
``penalty``      minus the lowest E_constraint in a, which is capped at ``MAX_PENALTY``
``length``       mean over the pool minus the mean over a of the log number of characters, standardised within authors
                 like the energy: high for an answer with short texts
===============  ======================================================================================

Terms for "none of them":

==============  ======================================================================================
``none``        1
``kind``        difficulty of the kind of question: log-odds that no candidate is right on its problems, minus those on
                all problems; left out where problems have no kinds
``pool_length`` mean over the pool of the standardised log number of characters: high if texts are longer than usual
``unparsed``    share of the candidates with text that are in no cluster
==============  ======================================================================================

Sources: optimal aggregation of answers and verifier scores, arXiv 2510.13918; one coin per author, Dawid and Skene
(1979).
"""

import numpy as np

from raydebm.decision.evidence.terms import Term, TermInputs
from raydebm.decision.table import Floats, PoolTable, lowest, mean

KIND = "kind"
"""Name of the term that is left out where problems have no kinds."""
MAX_PENALTY = 10.0


def log_votes(table: PoolTable) -> Floats:
    """The term ``votes``, shape (C,)."""
    sizes = np.bincount(table.cluster_of_row, minlength=table.num_clusters)
    totals = np.bincount(table.pool_of_row, minlength=len(table.clusters))
    return np.log(sizes / totals[table.pool_of_cluster])


def _authors(inputs: TermInputs) -> Floats:
    table = inputs.table
    return np.bincount(table.cluster_of_row, inputs.voice, table.num_clusters).astype(np.float64)


def _skill(inputs: TermInputs) -> Floats:
    table = inputs.table
    return np.bincount(table.cluster_of_row, inputs.voice * inputs.skill, table.num_clusters).astype(np.float64)


def _energy(inputs: TermInputs) -> Floats:
    table = inputs.table
    own = lowest(inputs.z, table.cluster_of_row[inputs.scored], table.num_clusters)
    return inputs.level[table.pool_of_cluster] - own


def _penalty(inputs: TermInputs) -> Floats:
    table = inputs.table
    return -np.minimum(lowest(table.penalty, table.cluster_of_row, table.num_clusters), MAX_PENALTY)


def _length(inputs: TermInputs) -> Floats:
    table = inputs.table
    own = mean(inputs.length, table.cluster_of_row, table.num_clusters)
    return inputs.pool_length[table.pool_of_cluster] - own


BUILT_IN = (
    Term(name="votes", words="share of candidates", measure=lambda inputs: log_votes(inputs.table)),
    Term(name="authors", words="number of authors", measure=_authors),
    Term(name="skill", words="skill of its authors", measure=_skill),
    Term(name="energy", words="its lowest energy", measure=_energy),
    Term(name="penalty", words="constraints", measure=_penalty),
    Term(name="length", words="brevity of its texts", measure=_length),
    Term(name="none", words="none of them", about="none", measure=lambda inputs: np.ones(inputs.table.num_pools)),
    Term(name=KIND, words="kind of question", about="none", measure=lambda inputs: inputs.difficulty),
    Term(name="pool_length", words="mean length", about="none", measure=lambda inputs: inputs.pool_length),
    Term(name="unparsed", words="no answer", about="none", measure=lambda inputs: inputs.table.unparsed),
)
"""Built-in terms in the order of their columns."""
TERMS = tuple(term.name for term in BUILT_IN if term.about == "answer")
CONTEXT = tuple(term.name for term in BUILT_IN if term.about == "none")
