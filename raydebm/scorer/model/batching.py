"""Conversion of texts to token ids, and of token ids to micro-batches of similar length.

In:   (problem, candidate) texts.
Out:  ids of ``[CLS] x [SEP] y [SEP]``, or for decoders of ``x, newline, y, EOS`` (after BOS if the tokenizer adds one),
      and padded tensors for one forward pass each.
Independent of: encoders, energies.

Shapes: B texts of a micro-batch, T tokens.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from raydebm.errors import ConfigError
from raydebm.records import REFERENCE_HEADING

MIN_FILL = 0.85
"""A micro-batch ends before a text shorter than this fraction of its longest text, if it has ``MIN_TOKENS``."""
MIN_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Padded tokens by type of device, below which small matrix products cost more than the padding they avoid."""
CHUNK = 1000
"""Texts per tokenizer call, limited because a tokenizer's output takes 20 times the memory of the ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    ids: Sequence[int]
    """Token ids in an array: 4 bytes per token instead of 36 in a tuple, because a training keeps all its texts."""
    num_truncated: int
    """Number of truncated tokens."""
    problem_read: float = 1.0
    """Fraction of the problem's tokens kept; 1 for an empty problem."""
    answer_read: float = 1.0
    """Fraction of the answer's tokens kept; 1 for an empty answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    positions: tuple[int, ...]
    """Indices of the rows in the batched list."""
    ids: Tensor
    """Shape (B, T)."""
    mask: Tensor
    """1 at tokens, 0 at padding, shape (B, T)."""

    def to(self, device: torch.device) -> "MicroBatch":
        """The batch with its tensors on a device; positions stay on the CPU."""
        return MicroBatch(positions=self.positions, ids=self.ids.to(device), mask=self.mask.to(device))

    def rows(self, rows: slice) -> "MicroBatch":
        """The texts in a range of rows, with the same padding."""
        return MicroBatch(positions=self.positions[rows], ids=self.ids[rows], mask=self.mask[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """Token ids before, between and after problem and candidate."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def num_special(self) -> int:
        """Number of tokens that every text has in addition to its problem and candidate."""
        return len(self.before) + len(self.between) + len(self.after)


def encoder_form(tokenizer: Any) -> TextForm:
    """The form ``[CLS] x [SEP] y [SEP]``."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    return TextForm(before=(cls,), between=(sep,), after=(sep,))


def decoder_form(tokenizer: Any) -> TextForm:
    """The form ``x, newline, y, EOS``, after BOS if the tokenizer adds one."""
    first = tokenizer("\n")["input_ids"][:1]
    opens = bool(first) and first[0] == tokenizer.bos_token_id
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
    return TextForm(before=tuple(first) if opens else (), between=tuple(newline), after=(tokenizer.eos_token_id,))


class TextEncoder:
    """Tokenizer of (problem, candidate) texts, without segment ids. ``fitted`` cuts long ones."""

    def __init__(self, tokenizer: Any, *, max_length: int, is_decoder: bool = False) -> None:
        self._form = decoder_form(tokenizer) if is_decoder else encoder_form(tokenizer)
        if max_length <= self._form.num_special:
            raise ConfigError(f"scorer.max_length must be above {self._form.num_special}, got {max_length}")
        self._tokenizer = tokenizer
        self._max_length = max_length

    def __call__(self, texts: Sequence[tuple[str, str]]) -> list[EncodedText]:
        """One encoding per (problem, candidate), in order."""
        form, room = self._form, self._max_length - self._form.num_special
        encoded = []
        for whole, request, answer in ids_of_pairs(self._tokenizer, texts):
            problem, kept = fitted(whole, answer, room, request=request)
            encoded.append(
                EncodedText(
                    ids=array("i", (*form.before, *problem, *form.between, *kept, *form.after)),
                    num_truncated=len(whole) + len(answer) - len(problem) - len(kept),
                    problem_read=len(problem) / len(whole) if whole else 1.0,
                    answer_read=len(kept) / len(answer) if answer else 1.0,
                )
            )
        return encoded


def ids_of_pairs(
    tokenizer: Any, texts: Sequence[tuple[str, str]]
) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[int]]]:
    """Ids of the problem, of the problem without its reference information, and of the answer, for each (problem,
    answer)."""
    named = [(problem, without_reference(problem), answer) for problem, answer in texts]
    ids = token_ids(tokenizer, (text for texts_of_one in named for text in texts_of_one))
    return ((ids[problem], ids[request], ids[answer]) for problem, request, answer in named)


def without_reference(problem: str) -> str:
    """The problem up to the line ``Reference information:``, if it has one."""
    return problem.partition(f"\n\n{REFERENCE_HEADING}\n")[0]


def fitted(
    problem: Sequence[int], answer: Sequence[int], room: int, *, request: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Cut a problem and its answer to ``room`` tokens together; shorter ones are unchanged.

    Reference information is left out first, as a whole. A third of the room is for the problem and the rest for the
    answer; either may use what the other leaves. Each is cut in its middle, and the answer's last token is always kept.

    Args:
        problem: ids of the whole problem.
        answer: ids of the answer.
        room: number of tokens, at least 1.
        request: ids of the problem without its reference information.
    """
    if len(problem) + len(answer) > room:
        problem = request
    problem = cut_middle(problem, max(room // 3, room - len(answer)))
    return problem, cut_middle(answer, room - len(problem))


def token_ids(tokenizer: Any, texts: Iterable[str]) -> dict[str, Sequence[int]]:
    """Ids without special tokens by text, as arrays. Repeated texts, such as a pool's problem, are tokenized once.

    A special token inside a text is read as plain letters: "[SEP]" in an answer ends nothing.
    """
    distinct = list(dict.fromkeys(texts))
    ids: dict[str, Sequence[int]] = {}
    for start in range(0, len(distinct), CHUNK):
        chunk = distinct[start : start + CHUNK]
        encoded = tokenizer(
            chunk, add_special_tokens=False, truncation=False, padding=False, return_attention_mask=False,
            return_token_type_ids=False, verbose=False, split_special_tokens=True,
        )  # fmt: skip
        ids |= {text: array("i", text_ids) for text, text_ids in zip(chunk, encoded["input_ids"], strict=True)}
    return ids | _spelled(tokenizer, ids)


def _spelled(tokenizer: Any, ids: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """New ids of the texts that still have special ids, with a blank inside each special token. Word and SentencePiece
    vocabularies contain these tokens."""
    special = frozenset(getattr(tokenizer, "all_special_ids", ())) - {getattr(tokenizer, "unk_token_id", None)}
    broken: dict[str, Sequence[int]] = {}
    for text, text_ids in ids.items():
        if not special.isdisjoint(text_ids):
            spelled = without_special_tokens(tokenizer, text)
            again = tokenizer(spelled, add_special_tokens=False, verbose=False, split_special_tokens=True)
            broken[text] = array("i", again["input_ids"])
    return broken


def without_special_tokens(tokenizer: Any, text: str) -> str:
    """The text with a blank inside each special token, so that a chat template or a pair of texts reads it as
    letters."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    for token in {*tokenizer.all_special_tokens, *(str(token) for token in added if token.special)}:
        text = text.replace(token, f"{token[:1]} {token[1:]}")
    return text


def cut_middle(ids: Sequence[int], length: int) -> list[int]:
    """At most ``length`` ids: the first half and the last half (rounded up)."""
    if len(ids) <= length:
        return list(ids)
    first = length // 2
    return [*ids[:first], *ids[len(ids) - (length - first) :]]


def plan_micro_batches(
    lengths: Sequence[int], *, max_tokens: int, device: str = "cpu", max_texts: int | None = None
) -> list[list[int]]:
    """Positions grouped by similar length, longest first, at most ``max_tokens`` padded tokens per group.

    A text longer than ``max_tokens`` has its own group.

    Args:
        max_texts: maximum number of texts per group. Default: no limit.
        device: type of the device that reads the texts, which sets the smallest group (``MIN_TOKENS``).
    """
    min_tokens = MIN_TOKENS.get(device, MIN_TOKENS["cuda"])
    order = sorted(range(len(lengths)), key=lambda position: (-lengths[position], position))
    groups: list[list[int]] = []
    longest = 0
    for position in order:
        size = longest * len(groups[-1]) if groups else 0
        is_full = size + longest > max_tokens or (groups and len(groups[-1]) == max_texts)
        is_shorter = size >= min_tokens and lengths[position] < MIN_FILL * longest
        if not groups or is_full or is_shorter:
            groups.append([])
            longest = lengths[position]
        groups[-1].append(position)
    return groups


def pad(ids: Sequence[Sequence[int]], *, positions: Sequence[int], pad_id: int) -> MicroBatch:
    """The texts at ``positions``, right-padded to the longest of them."""
    longest = max(len(ids[position]) for position in positions)
    ids_BT = torch.full((len(positions), longest), pad_id, dtype=torch.long)
    mask_BT = torch.zeros((len(positions), longest), dtype=torch.long)
    for row, position in enumerate(positions):
        tokens = ids[position]
        ids_BT[row, : len(tokens)] = torch.tensor(tokens)
        mask_BT[row, : len(tokens)] = 1
    return MicroBatch(positions=tuple(positions), ids=ids_BT, mask=mask_BT)


def micro_batches(
    ids: Sequence[Sequence[int]], *, max_tokens: int, pad_id: int, device: str = "cpu", max_texts: int | None = None
) -> list[MicroBatch]:
    """Group texts into padded micro-batches on the CPU. Every position occurs once.

    Args:
        device: type of the device that will read them.
        max_texts: maximum number of texts per micro-batch. Default: no limit.
    """
    lengths = [len(tokens) for tokens in ids]
    plan = plan_micro_batches(lengths, max_tokens=max_tokens, device=device, max_texts=max_texts)
    return [pad(ids, positions=positions, pad_id=pad_id) for positions in plan]
