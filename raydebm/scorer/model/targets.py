"""Linear layers and blocks of a backbone that an adapter adapts, found in its module tree.

Targets are the paper's roles, named by ModernBERT's modules, or names of the backbone's own modules:

========  ==================================================  ==================================================
target    role                                                such as
========  ==================================================  ==================================================
``Wqkv``  attention in, fused or separate                     ``Wqkv``; ``query``, ``key``, ``value``; ``q_proj`` ...
``Wo``    attention out and feed-forward out                  ``Wo``; ``o_proj``, ``down_proj``; ``output.dense``
``Wi``    feed-forward in, with its gate                      ``Wi``; ``gate_proj``, ``up_proj``; ``intermediate.dense``
========  ==================================================  ==================================================

A layer belongs to the attention if the name of an enclosing module contains "att". In the attention, layers named in
``ATTENTION_OUT`` are its output and all others its input. Elsewhere, a layer is an input if its input has the hidden
size, else an output if its output has. Only repeated layers are used, so no embedding or pooler is adapted. On
DeBERTa the roles follow the paper's own table for adapters a0, a1 and a4, which differs from the others: ``Wqkv`` is
query and value, ``Wo`` with it adds the key, and ``Wi`` the attention's output.
"""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

from torch import nn

from raydebm.config import AdapterConfig
from raydebm.errors import ConfigError
from raydebm.scorer.model.blocks import block_list

ROLES = ("Wqkv", "Wo", "Wi")
ATTENTION_OUT = frozenset({"Wo", "wo", "o", "o_proj", "out_proj", "out_lin", "dense", "c_proj", "proj"})
ROUTERS = frozenset({"gate", "router"})
"""Linear layers that select experts and do not transform the states."""
_DEBERTA: Mapping[str, Sequence[str]] = {
    "Wqkv": ("query_proj", "value_proj"),
    "Wo": ("key_proj",),
    "Wi": ("attention.output.dense",),
}


def target_modules(adapter: AdapterConfig, encoder: nn.Module) -> tuple[str, ...]:
    """Suffixes that match the adapted modules and no others, in PEFT's form.

    Raises:
        ConfigError: a target is neither a role nor a module of the backbone; on DeBERTa, roles without Wqkv; or the
            backbone has no such layer.
    """
    linear, config = linear_layers(encoder), cast("Any", encoder.config)
    if config.model_type == "deberta-v2" and set(adapter.targets) <= set(ROLES):
        suffixes = _deberta_suffixes(adapter)
        chosen = {name for name in linear if any(f".{name}".endswith(f".{suffix}") for suffix in suffixes)}
    else:
        chosen = _chosen(adapter, int(config.hidden_size), linear)
    chosen &= _in_layers(adapter, encoder, linear)
    if not chosen:
        raise ConfigError(f"adapter {adapter.name!r}: layers {adapter.layers} have none of its targets; choose others")
    everything = [name for name, _ in encoder.named_modules() if name]
    return tuple(sorted({_suffix(name, chosen, everything) for name in chosen}))


def adapted_blocks(adapter: AdapterConfig, encoder: nn.Module) -> tuple[int, ...]:
    """Numbers of the adapted blocks, ascending.

    Raises:
        ConfigError: the backbone has no such block.
    """
    count = len(block_list(encoder)[1])
    if isinstance(adapter.layers, str):
        lowest = {"all": 0, "upper half": count // 2, "upper quarter": count - math.ceil(count / 4)}[adapter.layers]
        return tuple(range(lowest, count))
    outside = [number for number in adapter.layers if not -count <= number < count]
    if outside:
        raise ConfigError(
            f"adapter {adapter.name!r}: layers {outside} do not exist; the backbone has {count}, numbered 0 to "
            f"{count - 1}, or -{count} to -1"
        )
    return tuple(sorted({number % count for number in adapter.layers}))


def _in_layers(adapter: AdapterConfig, encoder: nn.Module, linear: Mapping[str, nn.Linear]) -> set[str]:
    if adapter.layers == "all":
        return set(linear)
    prefix, _ = block_list(encoder)
    starts = tuple(f"{prefix}.{number}." for number in adapted_blocks(adapter, encoder))
    return {name for name in linear if name.startswith(starts)}


def _chosen(adapter: AdapterConfig, hidden_size: int, linear: Mapping[str, nn.Linear]) -> set[str]:
    """The linear layers of the adapter's targets, in all blocks."""
    roles = {name: role_of(name, layer, hidden_size=hidden_size) for name, layer in linear.items()}
    chosen: set[str] = set()
    for target in adapter.targets:
        layers = {name for name, role in roles.items() if role == target or f".{name}".endswith(f".{target}")}
        if not layers:
            leaves = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise ConfigError(
                f"adapter {adapter.name!r}: target {target!r} is neither a role ({', '.join(ROLES)}) with layers nor a "
                f"linear layer of the backbone; its linear layers are called {leaves or 'nothing'}"
            )
        chosen |= layers
    return chosen


def linear_layers(encoder: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers of the repeated blocks, by name."""
    return {
        name: module
        for name, module in encoder.named_modules()
        if isinstance(module, nn.Linear) and any(part.isdigit() for part in name.split("."))
    }


def role_of(name: str, layer: nn.Linear, *, hidden_size: int) -> str | None:
    """The role of a linear layer; None if it has no role."""
    *around, leaf = name.split(".")
    if leaf in ROUTERS:
        return None
    if any("att" in part.lower() for part in around):
        return "Wo" if leaf in ATTENTION_OUT else "Wqkv"
    if layer.in_features == hidden_size and not (leaf == "Wo" or around[-1] == "output"):
        return "Wi"
    return "Wo" if layer.out_features == hidden_size else None


def _suffix(name: str, chosen: Set[str], everything: Sequence[str]) -> str:
    """The shortest suffix of a module name that no module outside ``chosen`` has."""
    parts = name.split(".")
    return next(
        suffix
        for suffix in (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        if all(other in chosen for other in everything if f".{other}".endswith(f".{suffix}"))
    )


def _deberta_suffixes(adapter: AdapterConfig) -> tuple[str, ...]:
    if "Wqkv" not in adapter.targets:
        raise ConfigError(
            f"adapter {adapter.name!r}: targets {adapter.targets} have no counterpart on DeBERTa; "
            "include Wqkv, alone or with Wo or Wi"
        )
    return tuple(name for target in adapter.targets for name in _DEBERTA[target])
