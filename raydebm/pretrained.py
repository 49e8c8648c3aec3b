"""Loading of transformers models, with clear errors for those that would give nonsense or a traceback.

In:   a folder or a hub name, and its name in errors.
Out:  a model with all its weights, and a tokenizer with its own vocabulary, all of whose ids the model can embed.
Independent of: the model's purpose and device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils import logging as transformers_logging

from raydebm.errors import CheckpointError, in_one_line

_MARKS = ("bos_token_id", "eos_token_id", "unk_token_id", "sep_token_id", "cls_token_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Source of a model, and its name in errors."""

    called: str
    """Start of every message, such as ``backbone 'x'``."""
    place: Path | str
    """A folder, or a name on the hub."""
    remedy: str = "Check the name, the network and the model's kind, or give a local folder"
    """Advice in the error for an unreadable model."""

    def config(self) -> Any:
        """The model's configuration. Raises CheckpointError if it cannot be read."""
        return self._read(AutoConfig.from_pretrained)

    def model(self, reader: Any, *, dtype: Any, unused: tuple[str, ...] = ()) -> Any:
        """The model, with every weight from its files.

        Args:
            reader: an Auto class, or another one with ``from_pretrained``.
            unused: prefixes of the names of weights that may be missing or have another shape.

        Raises:
            CheckpointError: the model cannot be read, weights are missing or have another shape, or an encoder is read
                as a causal language model.
        """
        model, info = self._read(
            reader.from_pretrained, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
        )
        if reader is AutoModelForCausalLM:
            self._check_causal(model.config)
        missing = sorted(name for name in info["missing_keys"] if not name.startswith(unused))
        if missing:
            raise CheckpointError(
                f"{self.called}: {len(missing)} weights are missing, such as {missing[0]!r}; the model is "
                "incomplete or of another kind. Give a complete model of the right kind"
            )
        misfits = sorted(misfit for misfit in info["mismatched_keys"] if not misfit[0].startswith(unused))
        if misfits:
            name, stored, wanted = misfits[0]
            raise CheckpointError(
                f"{self.called}: the shapes of {len(misfits)} weights do not fit its config.json, such as {name!r}: "
                f"{tuple(stored)} in the file, {tuple(wanted)} by the config. Take both from the same model"
            )
        return model

    def tokenizer(self) -> Any:
        """The tokenizer.

        Raises:
            CheckpointError: the tokenizer is missing or cannot be read.
        """
        tokenizer = self._read(AutoTokenizer.from_pretrained)
        added = tokenizer.added_tokens_decoder
        num_own = sum(token_id not in added for token_id in tokenizer.get_vocab().values())
        # Without tokenizer files, transformers builds one of special tokens, sometimes with a word-start marker: the
        # model then cannot distinguish texts with the same number of words.
        if num_own < 2:
            raise CheckpointError(
                f"{self.called} has no tokenizer: {num_own} tokens are not special ones. Save the "
                "tokenizer that the model was trained with into its folder (`tokenizer.save_pretrained`)"
            )
        return tokenizer

    def check_ids(self, tokenizer: Any, model: Any, *, pads: bool = True) -> None:
        """Refuse a tokenizer that can give a text an id without an embedding in the model.

        Special tokens that texts never contain, such as Gemma's image token, may lack an embedding.

        Args:
            pads: whether batches are padded with the padding token.

        Raises:
            CheckpointError: the tokenizer has such an id.
        """
        num_rows = model.get_input_embeddings().weight.shape[0]
        added, template = tokenizer.added_tokens_decoder, str(tokenizer.chat_template)
        marks = {getattr(tokenizer, mark) for mark in (*_MARKS, *(("pad_token_id",) if pads else ()))}
        beyond = {
            token: token_id
            for token, token_id in tokenizer.get_vocab().items()
            if token_id >= num_rows
            and (token_id not in added or not added[token_id].special or token_id in marks or token in template)
        }
        if beyond:
            token = max(beyond, key=lambda name: beyond[name])
            raise CheckpointError(
                f"{self.called}: its tokenizer has {len(beyond)} ids beyond the {num_rows} rows of its embedding, such "
                f"as {beyond[token]} for {token!r}. Give the tokenizer that the model was trained with, or resize the "
                "embedding (`model.resize_token_embeddings`) and train it"
            )

    def _check_causal(self, config: Any) -> None:
        family = str(config.model_type)
        if family in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
            raise CheckpointError(
                f"{self.called} is an encoder ({family!r}), in which each token sees those after it; give a decoder "
                "such as Qwen2 or Llama"
            )

    def _read(self, reader: Any, **options: Any) -> Any:
        with _quiet_transformers():
            try:
                return reader(self.place, **options)
            except Exception as error:  # safetensors, tokenizers and pickle raise their own for a corrupt file
                is_explained = isinstance(error, (OSError, ValueError, ImportError))
                reason = str(error) if is_explained else f"{type(error).__name__}: {error}"
                raise CheckpointError(
                    f"{self.called} cannot be read: {in_one_line(reason).rstrip('.:')}. {self.remedy}. A corrupt file "
                    "or a Git LFS pointer must be fetched again"
                ) from error


def is_decoder_type(family: str) -> bool:
    """True if models of this type are causal language models and not masked ones."""
    return family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and family not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress the load report about unused heads (MLM, pooler) and the progress bar; missing weights raise a
    CheckpointError instead."""
    log: Any = transformers_logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
