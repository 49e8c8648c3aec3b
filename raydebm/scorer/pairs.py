"""Training pairs, splits of the problems, and each adapter's bag of problems (paper section 3.2).

All choices depend on ids and a seed alone, so the order of problems and candidates does not matter.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from raydebm.config import PairsConfig, Recipe
from raydebm.config.scorer import POSITIVE_FRAC
from raydebm.errors import ConfigError, PoolError
from raydebm.identity import content_id, seed_for, text_key
from raydebm.records import Candidate, Label, Pair, Problem, Verdict
from raydebm.run.tables import SplitProblem, pools_of
from raydebm.tasks.base import TaskDefaults

_BOTH = "both verdicts but never by one author"
_PAIRED = "paired"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGroup:
    """Training data of one problem: its distinct texts, and the pairs among them."""

    problem_id: str
    prompt: str
    texts: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    """(index of the chosen text, index of the rejected text)."""


def deal_folds(prompts: Mapping[str, str], *, count: int, seed: int) -> dict[str, int]:
    """Deal problems into folds. Returns the number of the fold, from 0, by problem id.

    Problems whose texts differ only in case and whitespace share a fold. Groups are dealt by size, the largest first,
    each to the smallest fold so far; with distinct texts, fold sizes differ by at most one.

    Args:
        prompts: text of each problem, by problem id.
        count: number of folds.
        seed: seed of the order among groups of equal size.

    Raises:
        ConfigError: fewer than two folds, or more folds than distinct texts.
    """
    if count < 2:
        raise ConfigError(f"at least 2 folds are needed, got {count}: one is tested and the others train")
    groups = by_text(prompts)
    if count > len(groups):
        raise ConfigError(
            f"{count} folds need as many problems with distinct texts, and there are {len(groups)} "
            f"(of {len(prompts)} problems); ask for at most {len(groups)} folds"
        )
    ranked = sorted(
        groups, key=lambda ids: (-len(ids), min(content_id("fold", seed, problem_id) for problem_id in ids))
    )
    sizes, fold_of = [0] * count, dict[str, int]()
    for ids in ranked:
        smallest = sizes.index(min(sizes))
        sizes[smallest] += len(ids)
        fold_of |= dict.fromkeys(ids, smallest)
    return fold_of


def by_text(prompts: Mapping[str, str]) -> list[list[str]]:
    """Problem ids grouped by equal text."""
    groups: dict[str, list[str]] = {}
    for problem_id, prompt in prompts.items():
        groups.setdefault(text_key(prompt), []).append(problem_id)
    return list(groups.values())


def held_out(rows: Sequence[SplitProblem], recipe: Recipe) -> set[str]:
    """Ids of the test problems: those of ``pairs.fold`` if the recipe has one, else of ``task.test``.

    Args:
        rows: the run's problems.
    """
    fold = recipe.pairs.fold
    if fold is None:
        return {row.problem.problem_id for row in rows if row.split == "test"}
    prompts = {row.problem.problem_id: row.problem.prompt for row in rows}
    number, num_folds = fold
    fold_of = deal_folds(prompts, count=num_folds, seed=recipe.seed)
    return {problem_id for problem_id, index in fold_of.items() if index == number}


def split_problems(prompts: Mapping[str, str], *, validation_frac: float, seed: int) -> tuple[list[str], list[str]]:
    """Split problems into (train, validation): ``round(validation_frac * n)`` for validation, at least one in each.

    Both lists keep the order of ``prompts``. Problems whose texts differ only in case and whitespace are kept together,
    so validation may get more or fewer.

    Args:
        prompts: text of each problem, by problem id.

    Raises:
        PoolError: fewer than two distinct texts.
    """
    groups = by_text(prompts)
    if len(groups) < 2:
        raise PoolError(
            f"a split into train and validation needs at least 2 problems with distinct texts, got {len(groups)}"
        )
    count = min(max(round(validation_frac * len(prompts)), 1), len(prompts) - 1)
    validation = _first_problems(_ranked(groups, "split", seed)[:-1], count)
    train = [problem_id for problem_id in prompts if problem_id not in validation]
    return train, [problem_id for problem_id in prompts if problem_id in validation]


def bag(prompts: Mapping[str, str], *, bag_frac: float, seed: int, adapter: str) -> list[str]:
    """Training problems of one adapter: ``round(bag_frac * n)``, at least one, sampled without replacement.

    The adapter's name is part of the seed, so its bag stays the same when adapters are added. Problems with equal texts
    are in or out together.

    Args:
        prompts: text of each problem, by problem id.
    """
    count = max(round(bag_frac * len(prompts)), 1)
    sampled = _first_problems(_ranked(by_text(prompts), "bag", seed, adapter), count)
    return [problem_id for problem_id in prompts if problem_id in sampled]


def out_of_bag(
    prompts: Mapping[str, str], trained: Iterable[str], *, bag_frac: float, seed: int, adapters: Sequence[str]
) -> dict[str, tuple[bool, ...]]:
    """One flag per adapter by problem id: whether the adapter did not train on the problem. Problems in every bag are
    omitted.

    Problems without pairs were in no bag. They get bags by the same rule, so that the out-of-bag problems are
    distributed like unseen ones: neither easier nor harder. A problem with the text of a paired problem shares that
    problem's bags.

    Args:
        prompts: text of each problem of the training split, by problem id.
        trained: ids of the problems with pairs.
    """
    with_pairs = {name: prompts[name] for name in trained}
    key_of = {name: text_key(prompt) for name, prompt in prompts.items()}
    paired = {key_of[name] for name in with_pairs}
    without = {name: prompt for name, prompt in prompts.items() if key_of[name] not in paired}
    bags = [
        {
            key_of[name]
            for part in (with_pairs, without)
            for name in bag(part, bag_frac=bag_frac, seed=seed, adapter=adapter)
        }
        for adapter in adapters
    ]
    unseen = {name: tuple(key_of[name] not in own for own in bags) for name in prompts}
    return {name: members for name, members in unseen.items() if any(members)}


def _ranked(groups: Iterable[list[str]], *key: object) -> list[list[str]]:
    return sorted(groups, key=lambda ids: min(content_id(*key, name) for name in ids))


def _first_problems(groups: Iterable[list[str]], count: int) -> set[str]:
    """Problems of the first whole groups, until there are ``count``."""
    taken: set[str] = set()
    for ids in groups:
        if len(taken) >= count:
            break
        taken.update(ids)
    return taken


def with_defaults(config: PairsConfig, defaults: TaskDefaults) -> PairsConfig:
    """The recipe's settings, with the task's limits on texts where the recipe sets none."""
    limits = {
        name: getattr(defaults, name) for name in ("max_correct", "max_incorrect") if getattr(config, name) is None
    }
    return config.model_copy(update=limits)


def build_pairs(
    candidates: Iterable[Candidate], labels: Iterable[Label], *, config: PairsConfig, seed: int
) -> list[Pair]:
    """Pairs of a correct and an incorrect candidate of the same problem, in the order of the problems.

    Greedy, failed and unlabeled candidates are skipped. Equal texts count once; texts with contradictory labels are
    skipped. With violation scores (continuous tasks), the best ``POSITIVE_FRAC`` of a problem's texts are paired
    with the others, and equal scores are never paired.

    Limits per problem: ``config.max_correct`` correct texts, sampled by seed; ``config.max_incorrect`` incorrect texts,
    the smallest severity first (near misses teach more), ties sampled by seed; ``config.max_pairs`` pairs, sampled
    uniformly. With ``config.within_author`` both sides of a pair are from the same generator, so that the author does
    not reveal the side; the limits on texts and the share of best ones then hold per author.

    Raises:
        PoolError: no problem has a pair; the message counts the reasons.
    """
    label_of = {label.candidate_id: label for label in labels}
    maker = PairMaker(config, seed=seed)
    pairs = [
        pair for problem_id, pool in pools_of(candidates).items() for pair in maker.pairs(problem_id, pool, label_of)
    ]
    maker.require_pairs()
    return pairs


class PairMaker:
    """Maker of the pairs of ``build_pairs``, one problem at a time. Counts why problems have no pairs."""

    def __init__(self, config: PairsConfig, *, seed: int) -> None:
        self.num_pairs = 0
        self._config, self._seed = config, seed
        self._kinds: Counter[str] = Counter()

    @property
    def num_paired(self) -> int:
        """Number of problems with pairs."""
        return self._kinds[_PAIRED]

    def pairs(self, problem_id: str, pool: Sequence[Candidate], label_of: Mapping[str, Label]) -> list[Pair]:
        """The pairs of a problem.

        Args:
            pool: the problem's candidates, without greedy ones.
            label_of: labels by candidate id.
        """
        config, seed = self._config, self._seed
        pairs: list[tuple[Label, Label]] = []
        all_texts: list[Label] = []
        for author, written in _by_author(pool, config).items():
            texts = _labelled_texts(written, label_of)
            capped = _capped(texts, config, seed_for(seed, "caps", problem_id, *author))
            pairs += _all_pairs(capped)
            all_texts += texts
        self._kinds[_kind(all_texts, has_pairs=bool(pairs))] += 1
        thinned = _thinned(pairs, config.max_pairs, seed_for(seed, "pairs", problem_id))
        self.num_pairs += len(thinned)
        return [
            Pair(problem_id=problem_id, chosen=chosen.candidate_id, rejected=rejected.candidate_id)
            for chosen, rejected in thinned
        ]

    def require_pairs(self) -> None:
        """Check that at least one pair was made.

        Raises:
            PoolError: no problem has a pair; the message counts the reasons.
        """
        if self.num_pairs:
            return
        config, kinds = self._config, self._kinds
        across, remedy = "", "take more samples, or use generators of different strength"
        if config.within_author:
            across = f", {_BOTH} in {kinds[_BOTH]}"
            remedy = "sample each generator several times, or leave out pairs.within_author"
        raise PoolError(
            f"no pairs in {kinds.total()} problems: all candidates correct in {kinds['all correct']}, "
            f"all incorrect in {kinds['all incorrect']}, none labeled in {kinds['unlabeled']}, "
            f"all scores equal in {kinds['equal']}{across}; {remedy}"
        )


def _by_author(pool: Sequence[Candidate], config: PairsConfig) -> dict[tuple[str, ...], list[Candidate]]:
    """Candidates that may be paired with each other, by author; without ``within_author`` all under ``()``."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in pool:
        groups.setdefault((candidate.generator,) if config.within_author else (), []).append(candidate)
    return dict(sorted(groups.items()))


def _labelled_texts(pool: Sequence[Candidate], label_of: Mapping[str, Label]) -> list[Label]:
    """One label per distinct text, that of its candidate with the smallest id, in the order of these ids."""
    by_text: dict[str, list[Label]] = {}
    for candidate in sorted(pool, key=lambda candidate: candidate.candidate_id):
        label = label_of.get(candidate.candidate_id)
        if candidate.text is None or candidate.error is not None or label is None:
            continue
        if label.verdict is not Verdict.UNLABELED:
            by_text.setdefault(candidate.text, []).append(label)
    return [
        same[0] for same in by_text.values() if len({(label.verdict, label.violation_score) for label in same}) == 1
    ]


def _capped(texts: list[Label], config: PairsConfig, seed: int) -> list[Label]:
    """Texts within the limits per verdict, in their order. Continuous labels have no limit."""
    limits = {Verdict.CORRECT: config.max_correct, Verdict.INCORRECT: config.max_incorrect}
    candidate_ids: set[str] = set()
    for verdict, limit in limits.items():
        same = [label for label in texts if label.verdict is verdict]
        if limit is not None and len(same) > limit and not any(label.violation_score is not None for label in same):
            same = sorted(same, key=lambda label: (_severity(label), content_id("cap", seed, label.candidate_id)))
            same = same[:limit]
        candidate_ids.update(label.candidate_id for label in same)
    return [label for label in texts if label.candidate_id in candidate_ids]


def _severity(label: Label) -> float:
    return math.inf if label.severity is None else label.severity


def _all_pairs(texts: Sequence[Label]) -> list[tuple[Label, Label]]:
    if any(label.violation_score is not None for label in texts):
        return _continuous_pairs(texts)
    correct = [label for label in texts if label.verdict is Verdict.CORRECT]
    incorrect = [label for label in texts if label.verdict is Verdict.INCORRECT]
    return [(chosen, rejected) for chosen in correct for rejected in incorrect]


def _continuous_pairs(texts: Sequence[Label]) -> list[tuple[Label, Label]]:
    scored = [(label.violation_score, label) for label in texts if label.violation_score is not None]
    scored.sort(key=lambda entry: (entry[0], entry[1].candidate_id))
    num_chosen = max(round(POSITIVE_FRAC * len(scored)), 1)
    return [
        (chosen, rejected)
        for best, chosen in scored[:num_chosen]
        for worse, rejected in scored[num_chosen:]
        if best < worse
    ]


def _kind(texts: Sequence[Label], *, has_pairs: bool) -> str:
    verdicts = {label.verdict for label in texts}
    if has_pairs:
        return _PAIRED
    if not verdicts:
        return "unlabeled"
    if any(label.violation_score is not None for label in texts):
        return "equal"
    if len(verdicts) == 2:
        return _BOTH
    return "all correct" if Verdict.CORRECT in verdicts else "all incorrect"


def _thinned(pairs: list[tuple[Label, Label]], limit: int | None, seed: int) -> list[tuple[Label, Label]]:
    if limit is None or len(pairs) <= limit:
        return pairs
    places = sorted(Random(seed).sample(range(len(pairs)), limit))
    return [pairs[index] for index in places]


def training_groups(
    pairs: Iterable[Pair], candidates: Iterable[Candidate], problems: Iterable[Problem]
) -> list[TrainingGroup]:
    """Pairs grouped by problem, in the order of each problem's first pair.

    Raises:
        PoolError: a pair names an unknown problem or candidate, or a candidate without text.
    """
    pairs = list(pairs)
    named = {candidate_id for pair in pairs for candidate_id in (pair.chosen, pair.rejected)}
    texts = {
        candidate.candidate_id: candidate.text
        for candidate in candidates
        if candidate.candidate_id in named and candidate.text is not None
    }
    prompts = {problem.problem_id: problem.prompt for problem in problems}
    grouped: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        for candidate_id in (pair.chosen, pair.rejected):
            if candidate_id not in texts:
                raise PoolError(f"pair of problem {pair.problem_id!r}: candidate {candidate_id!r} is missing or empty")
        if pair.problem_id not in prompts:
            raise PoolError(f"pairs name problem {pair.problem_id!r}, which is not among the problems given")
        grouped.setdefault(pair.problem_id, []).append((texts[pair.chosen], texts[pair.rejected]))
    return [_group(problem_id, prompts[problem_id], sides) for problem_id, sides in grouped.items()]


def _group(problem_id: str, prompt: str, sides: Sequence[tuple[str, str]]) -> TrainingGroup:
    index_of: dict[str, int] = {}
    indices = tuple(
        (index_of.setdefault(chosen, len(index_of)), index_of.setdefault(rejected, len(index_of)))
        for chosen, rejected in sides
    )
    return TrainingGroup(problem_id=problem_id, prompt=prompt, texts=tuple(index_of), pairs=indices)
