"""The members of an ensemble by what they share: a frozen backbone, its tokenizer, and the tokenised texts.

In:   an ensemble's record, its adapters, loaded backbones.
Out:  groups of members, in the order of their first ones.
Does not know: energies, Ray.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raydebm.errors import CheckpointError
from raydebm.scorer.checkpoint import StoredAdapter
from raydebm.scorer.checkpoint_records import EnsembleRecord, MemberRecord
from raydebm.scorer.model.backbone import Backbone, Weights, load_backbone
from raydebm.scorer.model.batching import TextEncoder


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberGroup:
    """Members that read the same token ids by one backbone."""

    backbone: Backbone
    encoder: TextEncoder
    positions: tuple[int, ...]
    """Places of its members in the ensemble, ascending."""
    adapters: tuple[StoredAdapter, ...]
    """What is stored of these members, in the same order."""


def load_backbones(
    record: EnsembleRecord,
    *,
    weights: Mapping[str, Weights] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    loaded: Sequence[Backbone] = (),
) -> list[Backbone]:
    """Load each backbone of an ensemble once, all in one type.

    Args:
        weights: by backbone name, what ``backbone.frozen_weights`` gave, to map instead of reading the files.
        device: as ``load_backbone`` has it.
        dtype: likewise; ``"auto"`` is what suits the widest backbone, which takes most of the time.
        loaded: backbones in memory, taken where name, weights and type are the ensemble's.

    Raises:
        CheckpointError: a backbone cannot be read, or the weights do not fit it.
    """
    members = {member.backbone: member for member in record.members}
    backbones: list[Backbone] = []
    for member in sorted(members.values(), key=lambda member: -member.hidden_size):
        fitting = (one for one in loaded if _is_backbone_of(member, one) and dtype in ("auto", one.dtype))
        backbone = next(fitting, None)
        if backbone is None:
            own = (weights or {}).get(member.backbone)
            backbone = load_backbone(member.backbone, weights=own, device=device, dtype=dtype)
        dtype = backbone.dtype if dtype == "auto" else dtype
        backbones.append(backbone)
    return backbones


def group_members(
    record: EnsembleRecord, adapters: Sequence[StoredAdapter], backbones: Sequence[Backbone]
) -> list[MemberGroup]:
    """Group the members that have one backbone and one maximum length.

    Raises:
        CheckpointError: a member was trained on a backbone with other weights than the given ones.
    """
    placed: dict[tuple[int, int], list[int]] = {}
    member_backbones = [_backbone_of(member, backbones) for member in record.members]
    for position, (member, backbone) in enumerate(zip(record.members, member_backbones, strict=True)):
        placed.setdefault((id(backbone), member.max_length), []).append(position)
    return [
        MemberGroup(
            backbone=(backbone := member_backbones[positions[0]]),
            encoder=TextEncoder(backbone.tokenizer, max_length=max_length, is_decoder=backbone.is_decoder),
            positions=tuple(positions),
            adapters=tuple(adapters[position] for position in positions),
        )
        for (_, max_length), positions in placed.items()
    ]


def _backbone_of(member: MemberRecord, backbones: Sequence[Backbone]) -> Backbone:
    """The backbone of these weights, that of the member's own name first: tokenizers may differ."""
    equal = [backbone for backbone in backbones if backbone.fingerprint == member.backbone_fingerprint]
    if not equal:
        given = [backbone for backbone in backbones if backbone.name == member.backbone] or backbones
        raise CheckpointError(
            f"the checkpoint was trained on backbone {member.backbone!r} with weights {member.backbone_fingerprint} "
            f"(adapter {member.name!r}), but "
            + ", ".join(f"{backbone.name!r} has weights {backbone.fingerprint}" for backbone in given)
            + "; use the same backbone, or train again"
        )
    return next((backbone for backbone in equal if _is_backbone_of(member, backbone)), equal[0])


def _is_backbone_of(member: MemberRecord, backbone: Backbone) -> bool:
    return (backbone.name, backbone.fingerprint) == (member.backbone, member.backbone_fingerprint)
