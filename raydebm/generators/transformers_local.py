"""Candidates from a causal LM in this process: a local folder, a hub name, or ``embedded:<name>``.

Requests are decoded together, but each text is the same as if decoded alone.

Independent of: endpoints, journals, Ray.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from raydebm.config import TransformersGenerator
from raydebm.embedded import PREFIX, embedded_path
from raydebm.errors import CheckpointError, GenerationError, in_one_line
from raydebm.generators.decoding import DecodedRow, DecodeRow, decode
from raydebm.generators.replies import split_reasoning
from raydebm.generators.requests import TokenUsage, answered, unanswered
from raydebm.identity import canonical_json
from raydebm.pretrained import ModelSource
from raydebm.records import Candidate, GenerationRequest, Message

_STOP_WINDOW = 32
"""Number of last tokens that are searched for a stop string after each token."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    request: GenerationRequest
    row: DecodeRow


class LocalGenerator:
    """Generator with one model. Decodes one batch at a time in another thread, so that the event loop stays free."""

    def __init__(self, config: TransformersGenerator, *, threads: int | None = None) -> None:
        """Load the model. ``threads`` sets torch's number of threads in this process. Default: torch's own choice.

        Raises:
            GenerationError: the model cannot be loaded or is not a whole decoder, or the tokenizer does not fit the
                model or has no chat template.
            UnknownNameError: there is no embedded model of this name.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        self.name = config.name
        self._batch_size = config.batch_size
        self._tokenizer, self._model = _load(config)
        self._context = _context_of(self._model.config)
        self._eos_ids = _eos_ids(self._model, self._tokenizer)
        self._prompts: dict[str, tuple[int, ...] | GenerationError] = {}
        self._turn = asyncio.Lock()

    async def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """One candidate per request, batch by batch, with prompts of similar length in a batch."""
        prepared: list[_Prepared] = []
        for request in requests:
            prepared_request = self._prepare(request)
            if isinstance(prepared_request, Candidate):
                yield prepared_request
            else:
                prepared.append(prepared_request)
        prepared.sort(key=lambda each: (len(each.row.prompt_ids), each.row.prompt_ids))
        for start in range(0, len(prepared), self._batch_size):
            batch = prepared[start : start + self._batch_size]
            async with self._turn:
                candidates = await self._in_thread(batch)
            for candidate in candidates:
                yield candidate

    async def aclose(self) -> None:
        """Drop the cached prompts."""
        self._prompts.clear()

    async def _in_thread(self, batch: Sequence[_Prepared]) -> list[Candidate]:
        """Decode a batch. After a cancellation the thread ends at its next step, and this call waits for it. Otherwise
        the thread would run on during the next batch, without a caller."""
        cancelled = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(None, self._decode, batch, cancelled)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled.set()
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            raise

    def _prepare(self, request: GenerationRequest) -> _Prepared | Candidate:
        prompt = self._prompt_ids(request.messages)
        if isinstance(prompt, GenerationError):
            return unanswered(request, str(prompt))
        room = self._context - len(prompt)
        if room < 1:
            return unanswered(
                request,
                f"the prompt has {len(prompt)} tokens and the context of {self.name!r} holds {self._context}; "
                "shorten the problem or choose a model with a longer context",
            )
        row = DecodeRow(
            prompt_ids=prompt,
            seed=request.seed,
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            max_new_tokens=min(request.sampling.max_tokens, room),
        )
        return _Prepared(request, row)

    def _prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...] | GenerationError:
        """Token ids of a chat. Chats are cached, because all samples of a problem have the same one."""
        key = canonical_json([dict(message) for message in messages])
        if key not in self._prompts:
            if len(self._prompts) >= 4096:
                self._prompts.clear()
            try:
                self._prompts[key] = _render(self._tokenizer, [dict(message) for message in messages])
            except Exception as error:  # noqa: BLE001  # a template is a program by the model's author
                self._prompts[key] = GenerationError(
                    f"the chat template of {self.name!r} refused the messages: {error}"
                )
        return self._prompts[key]

    def _decode(self, batch: Sequence[_Prepared], cancelled: threading.Event) -> list[Candidate]:
        started = time.monotonic()
        decoded = decode(
            self._model,
            [prepared.row for prepared in batch],
            eos_ids=self._eos_ids,
            pad_id=self._eos_ids[0] if self._eos_ids else 0,
            should_stop=self._stop_test(batch),
            cancelled=cancelled,
        )
        latency_s = time.monotonic() - started
        return [self._candidate(prepared, row, latency_s) for prepared, row in zip(batch, decoded, strict=True)]

    def _stop_test(self, batch: Sequence[_Prepared]) -> Any:
        stops = [prepared.request.sampling.stop for prepared in batch]
        if not any(stops):
            return None

        def should_stop(index: int, token_ids: list[int]) -> bool:
            tail = self._text(token_ids[-_STOP_WINDOW:]) if stops[index] else ""
            return any(stop in tail for stop in stops[index])

        return should_stop

    def _candidate(self, prepared: _Prepared, row: DecodedRow, latency_s: float) -> Candidate:
        content = self._text(row.token_ids)
        for stop in prepared.request.sampling.stop:
            content = content.partition(stop)[0]
        text, reasoning = split_reasoning(content)
        num_prompt, num_completion = len(prepared.row.prompt_ids), len(row.token_ids)
        usage = TokenUsage(prompt_tokens=num_prompt, completion_tokens=num_completion, cost_usd=0.0)
        if not text.strip():
            reason = f"the model wrote no answer (finish_reason {row.finish_reason!r})"
            return unanswered(prepared.request, reason, usage=usage)
        return answered(
            prepared.request,
            text,
            usage=usage,
            reasoning=reasoning,
            finish_reason=row.finish_reason,
            latency_s=latency_s,
        )

    def _text(self, token_ids: list[int]) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))


def _render(tokenizer: Any, messages: list[dict[str, str]]) -> tuple[int, ...]:
    """Token ids of the chat with the opening of the assistant's turn.

    If the template refuses a system role, the system message is put before the first user message.
    """
    try:
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    except Exception:
        if len(messages) < 2 or messages[0]["role"] != "system":
            raise
        opening = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
        return _render(tokenizer, [opening, *messages[2:]])
    return tuple(ids)


def _load(config: TransformersGenerator) -> tuple[Any, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # float32 on CPU: bfloat16 is no faster there and makes a row's text depend on its batch
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    source = ModelSource(
        called=f"generator {config.name!r}: model {config.model!r}",
        place=embedded_path(config.model.removeprefix(PREFIX)) if config.model.startswith(PREFIX) else config.model,
    )
    try:
        tokenizer = source.tokenizer()
        model = source.model(AutoModelForCausalLM, dtype=dtype)
        source.check_ids(tokenizer, model, pads=False)
    except CheckpointError as error:
        raise GenerationError(str(error)) from error
    try:
        model = model.to(device).eval()
    except RuntimeError as error:
        raise GenerationError(
            f"{source.called} cannot be put on device {device!r}: {in_one_line(str(error))}. Make room there, or hide "
            "the GPU (CUDA_VISIBLE_DEVICES='')"
        ) from error
    if tokenizer.chat_template is None:
        raise GenerationError(
            f"generator {config.name!r}: the tokenizer of {config.model!r} has no chat template; use a chat model, "
            "or add a chat_template.jinja to its folder"
        )
    return tokenizer, model


def _context_of(config: Any) -> int:
    text_config = config.get_text_config(decoder=True)
    return int(getattr(text_config, "max_position_embeddings", None) or 2**30)


def _eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    ids: list[int] = []
    for value in (model.generation_config.eos_token_id, model.config.eos_token_id, tokenizer.eos_token_id):
        ids += value if isinstance(value, list) else [] if value is None else [value]
    return tuple(dict.fromkeys(ids))
