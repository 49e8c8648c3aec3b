"""Check of the scorer on a GPU: equality with the CPU, and speed of scoring and training.

    python benchmarks/gpu_check.py --out gpu_check.json

The command needs one GPU, but no network, Ray or run directory: it uses ModernBERT-base's architecture with random
weights. It has four parts, each printed as soon as it is measured:

- ``peak``: TFLOP/s of bf16 matrix products of 8,192 x 8,192, the reference of scoring.
- ``equality``: energies on the GPU against energies on the CPU in float32.
- ``scoring``: K=5 adapters, N=32 candidates of 1,000 tokens, against a PEFT ``set_adapter`` loop on the same weights.
  The engine with packed texts (``scorer.model.packing``) is measured eager and compiled, with the time of compilation.
  If vLLM is installed, its pooling runner is measured too (one model without adapters, times K).
- ``training``: optimiser steps of one, two and five adapters at once, in processes with a copy of the frozen weights
  each, and of five adapters in processes and in threads that share one copy.

The share of the peak counts the necessary operations: two per token and weight of the encoder's layers, without
attention.
``--device cpu --small`` runs everything at small sizes, as the tests do.
"""

import argparse
import contextlib
import json
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from bench_common import SpecialIds, peft_model
from bench_scoring import PeftLoop, heads_of, rank_correlation, stored_adapters
from bench_training import ours
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import ModernBertConfig, ModernBertModel, PreTrainedTokenizerFast

from raydebm.config import PAPER_ADAPTERS
from raydebm.scorer.ensemble import MergedEngine
from raydebm.scorer.model.backbone import Backbone, converted, make_backbone

Ids = list[tuple[int, ...]]

PARTS = ("peak", "equality", "scoring", "training")
VLLM_MEMORY = 0.4
"""Share of the device's memory for vLLM, next to the scorers that are still loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the measurements."""

    config: dict[str, Any]
    """Differences from ModernBERT-base's config."""
    num_texts: int
    num_tokens: int
    matrix: int
    seconds: float
    """Seconds of each measurement, after one warm-up."""
    together: tuple[int, ...]
    """Numbers of adapters that train at once."""
    training_texts: int


BASE = Sizes(config={}, num_texts=32, num_tokens=1000, matrix=8192, seconds=8.0, together=(1, 2, 5), training_texts=16)
SMALL = Sizes(
    config={
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 500,
        "pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
    },
    num_texts=4, num_tokens=40, matrix=64, seconds=0.05, together=(1, 2), training_texts=4,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    device: torch.device
    dtype: torch.dtype

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def peak_gib(self) -> float | None:
        """Peak memory of tensors in GiB since the last reset; None on the CPU."""
        if self.device.type != "cuda":
            return None
        return round(torch.cuda.max_memory_allocated(self.device) / 2**30, 2)

    def reset_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def seconds_of(self, work: Callable[[], object], *, at_least: float) -> float:
        """Median wall seconds of a call, over at least three calls and ``at_least`` seconds, after a warm-up call."""
        work()
        self.synchronize()
        times, began = list[float](), time.perf_counter()
        while len(times) < 3 or time.perf_counter() - began < at_least:
            started = time.perf_counter()
            work()
            self.synchronize()
            times.append(time.perf_counter() - started)
        return statistics.median(times)


def encoder_of(sizes: Sizes) -> Backbone:
    """ModernBERT-base's architecture with the same random weights in every call, in float32 on the CPU."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = ModernBertModel(ModernBertConfig(**sizes.config))
    return make_backbone(encoder, SpecialIds(encoder.config), name="modernbert-base", fingerprint="random")


def on(backbone: Backbone, place: Place) -> Backbone:
    encoder = converted(backbone.encoder, place.dtype, device=place.device)
    return make_backbone(encoder, backbone.tokenizer, name=backbone.name, fingerprint=backbone.fingerprint)


def texts_of(sizes: Sizes, *, count: int, seed: int = 0) -> Ids:
    """Texts of one problem, all of the same length, so that the measurement has no padding."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = ModernBertConfig(**sizes.config).vocab_size
    rows = torch.randint(10, vocabulary - 10, (count, sizes.num_tokens), generator=generator)
    return [tuple(row) for row in rows.tolist()]


def layer_weights(backbone: Backbone) -> int:
    """Number of weights in the encoder's layers, with which every token is multiplied."""
    return sum(weights.numel() for name, weights in backbone.encoder.named_parameters() if "layers." in name)


# ---- parts -----------------------------------------------------------------------------------------------------------


def peak(place: Place, sizes: Sizes) -> dict[str, Any]:
    left, right = (torch.randn(sizes.matrix, sizes.matrix, device=place.device).to(place.dtype) for _ in range(2))
    seconds = place.seconds_of(lambda: left @ right, at_least=sizes.seconds / 4)
    return {"matrix": sizes.matrix, "tflops": 2 * sizes.matrix**3 / seconds / 1e12}


def equality(place: Place, sizes: Sizes) -> dict[str, Any]:
    """Differences of energies from energies on the CPU in float32, K=5."""
    ids = texts_of(sizes, count=min(sizes.num_texts, 8), seed=1)
    ids = [row[: max(8, sizes.num_tokens // 4 + index)] for index, row in enumerate(ids)]
    reference = _energies(Place(device=torch.device("cpu"), dtype=torch.float32), sizes, ids)
    differences = {}
    for dtype in (torch.float32, place.dtype):
        energies = _energies(Place(device=place.device, dtype=dtype), sizes, ids)
        differences[str(dtype).removeprefix("torch.")] = {
            "max_difference": float((energies - reference).abs().max()),
            "rank_correlation": rank_correlation(reference, energies),
        }
    return {"texts": len(ids), "spread": float(reference.std()), **differences}


def _energies(place: Place, sizes: Sizes, ids: Ids) -> torch.Tensor:
    backbone = encoder_of(sizes)
    with torch.random.fork_rng():
        torch.manual_seed(2)  # the heads and adapters also use torch's own generator
        stored = stored_adapters(peft_model(backbone, PAPER_ADAPTERS), heads_of(backbone), PAPER_ADAPTERS)
    engine = MergedEngine(on(backbone, place), stored, micro_batch_tokens=8192)
    return engine.energies(ids, range(len(stored)))


def scoring(place: Place, sizes: Sizes, *, peak_tflops: float) -> dict[str, Any]:
    """Candidates per second of raydebm's engine, the PEFT loop and, if installed, vLLM."""
    backbone, ids = encoder_of(sizes), texts_of(sizes, count=sizes.num_texts)
    heads = heads_of(backbone)
    model = peft_model(backbone, PAPER_ADAPTERS)
    stored = stored_adapters(model, heads, PAPER_ADAPTERS)
    floor = 2 * layer_weights(backbone) * len(ids) * sizes.num_tokens * len(stored)
    moved = [head.to(place.device) for head in heads]
    loop = PeftLoop(model.to(place.device, place.dtype), moved, ids, batches="padded")
    moved_backbone, members = on(backbone, place), range(len(stored))
    budget = 1 << (len(ids) * sizes.num_tokens - 1).bit_length()  # one row of packed texts
    engine = MergedEngine(moved_backbone, stored, micro_batch_tokens=budget)

    def rate(work: Callable[[], object]) -> dict[str, Any]:
        place.reset_peak()
        seconds = place.seconds_of(work, at_least=sizes.seconds)
        return {
            "seconds": seconds,
            "candidates_per_s": len(ids) / seconds,
            "share_of_peak": floor / seconds / 1e12 / peak_tflops,
            "memory_gib": place.peak_gib(),
        }

    rows: dict[str, Any] = {
        "raydebm": rate(lambda: engine.energies(ids, members)),
        "PEFT set_adapter loop, one padded batch": rate(loop),
    }
    try:
        packed = MergedEngine(moved_backbone, stored, micro_batch_tokens=budget, packed=True)
        for name, known in _packed_ways(packed, ids, engine.energies(ids, members)):
            rows[name] = rate(lambda: packed.energies(ids, members)) | known
    except Exception as error:  # noqa: BLE001  # the other parts are measured after any error
        rows["packed"] = f"failed: {error!r}"
    return {
        "adapters": len(stored),
        "texts": len(ids),
        "tokens": sizes.num_tokens,
        **rows,
        "vllm": _vllm(place, sizes, ids),
    }


def _packed_ways(packed: MergedEngine, ids: Ids, padded: torch.Tensor) -> Iterator[tuple[str, dict[str, Any]]]:
    """Switch the engine to eager blocks, then to compiled ones. Yields the name and the facts of each."""
    packing, members = packed.packing, range(len(padded))
    assert packing is not None, "ModernBERT in bfloat16 can be packed everywhere"
    for name, rows_to_compile in (("packed, eager", float("inf")), ("packed, compiled", 0)):
        packing.rows_to_compile = rows_to_compile
        packed.energies(ids, members)
        packing.is_compiled = bool(packing.timing)  # even if it is slower
        if rows_to_compile == 0 and not packing.timing:
            raise ValueError("the blocks cannot be compiled; the warning above has the reason")
        difference = float((packed.energies(ids, members) - padded).abs().max())
        yield name, {"attention": packing.attention, "max_difference": difference, **packing.timing}


def _vllm(place: Place, sizes: Sizes, ids: Ids) -> dict[str, Any] | str:
    """vLLM's pooling runner on the same architecture and texts, without adapters: one of K passes."""
    if place.device.type != "cuda":
        return "needs a GPU"
    try:
        from vllm import LLM, TokensPrompt
    except ImportError:
        return "not installed"
    import tempfile

    try:
        with tempfile.TemporaryDirectory() as folder:
            encoder_of(sizes).encoder.save_pretrained(folder)
            _any_tokenizer(sizes).save_pretrained(folder)
            llm = LLM(folder, runner="pooling", gpu_memory_utilization=VLLM_MEMORY)
            prompts = [TokensPrompt(prompt_token_ids=list(row)) for row in ids]
            seconds = place.seconds_of(lambda: llm.embed(prompts, use_tqdm=False), at_least=sizes.seconds)
    except Exception as error:  # noqa: BLE001  # the other parts are measured after any error
        return f"failed: {error}"
    return {"seconds_of_one_pass": seconds, "candidates_per_s_at_five_passes": len(ids) / seconds / 5}


def _any_tokenizer(sizes: Sizes) -> PreTrainedTokenizerFast:
    """Any tokenizer, which vLLM needs even for token ids."""
    config = ModernBertConfig(**sizes.config)
    words = {f"w{number}": number for number in range(config.vocab_size)}
    special = {f"{name}_token": f"w{getattr(config, f'{name}_token_id')}" for name in ("pad", "cls", "sep")}
    model = Tokenizer(WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(tokenizer_object=model, **special)  # type: ignore[no-untyped-call]


def training(place: Place, sizes: Sizes) -> list[dict[str, Any]]:
    """Steps per second of all adapters together, and memory in use on the device. Each adapter runs in a process with
    its own copy of the frozen weights, in a process that maps a shared copy (CUDA IPC), or in a thread with its own
    stream."""
    rows = [_in_processes(place, sizes, together, is_shared=False) for together in sizes.together]
    most = max(sizes.together)
    return [*rows, _in_processes(place, sizes, most, is_shared=True), _in_threads(place, sizes, most)]


def _in_processes(place: Place, sizes: Sizes, together: int, *, is_shared: bool) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ready, rates = context.Barrier(together), context.Queue()
    float32 = Place(device=place.device, dtype=torch.float32)  # of the frozen weights; products are in bf16
    weights = on(encoder_of(sizes), float32).encoder.state_dict() if is_shared else None
    workers = [
        context.Process(target=_train, args=(index, place, sizes, ready, rates, weights), daemon=True)
        for index in range(together)
    ]
    for worker in workers:
        worker.start()
    results = [rates.get(timeout=240) for _ in workers]
    for worker in workers:
        worker.join()
    how = "processes, one copy of the weights" if is_shared else "processes, a copy each"
    return {"adapters": together, "how": how, **_summed(results)}


def _in_threads(place: Place, sizes: Sizes, together: int) -> dict[str, Any]:
    ready, results = threading.Barrier(together), list[Any]()
    backbone = on(encoder_of(sizes), Place(device=place.device, dtype=torch.float32))
    weights = backbone.encoder.state_dict()

    def work(index: int) -> None:
        stream = torch.cuda.Stream() if place.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            _train(index, place, sizes, ready, results, weights)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"adapters": together, "how": "threads, one copy of the weights", **_summed(results)}


def _summed(results: Sequence[tuple[float, float | None]]) -> dict[str, Any]:
    most = max((memory for _, memory in results if memory is not None), default=None)
    return {"steps_per_s": sum(rate for rate, _ in results), "device_memory_gib": most}


def _train(index: int, place: Place, sizes: Sizes, ready: Any, results: Any, weights: Any) -> None:
    torch.set_num_threads(1)
    half = sizes.training_texts // 2
    pairs = [(right, half + right) for right in range(half)]
    backbone = encoder_of(sizes)
    if weights is None:
        backbone = on(backbone, Place(device=place.device, dtype=torch.float32))
    else:
        backbone.encoder.load_state_dict(weights, assign=True)
        torch.nn.Module.to(backbone.encoder, place.device)  # moves the buffers; the weights are already there
    step = ours(
        make_backbone(backbone.encoder, backbone.tokenizer, name=backbone.name, fingerprint=backbone.fingerprint),
        PAPER_ADAPTERS[index],
        texts_of(sizes, count=sizes.training_texts, seed=index),
        pairs,
        autocast=torch.bfloat16,
        max_tokens=sizes.training_texts * sizes.num_tokens,
    )
    step()
    ready.wait()
    rate = 1 / place.seconds_of(step, at_least=sizes.seconds)
    memory = None
    if place.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(place.device)
        memory = round((total - free) / 2**30, 2)
    (results.append if isinstance(results, list) else results.put)((rate, memory))
    ready.wait()  # so that each measures the memory while all are loaded


# ---- report ----------------------------------------------------------------------------------------------------------


def machine(device: torch.device) -> dict[str, Any]:
    versions = {each: metadata.version(each) for each in ("torch", "transformers", "peft")}
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions["vllm"] = metadata.version("vllm")
    if device.type != "cuda":
        return {"device": platform.processor() or platform.machine(), "python": platform.python_version(), **versions}
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        **versions,
    }


def parts(place: Place, sizes: Sizes, only: Sequence[str]) -> Iterator[tuple[str, Any]]:
    yield "machine", machine(place.device)
    if "peak" in only or "scoring" in only:
        measured = peak(place, sizes)
        yield "peak", measured
    if "equality" in only:
        yield "equality", equality(place, sizes)
    if "scoring" in only:
        yield "scoring", scoring(place, sizes, peak_tflops=measured["tflops"])
    if "training" in only:
        yield "training", training(place, sizes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, help="parts to measure; default: all")
    parser.add_argument("--small", action="store_true", help="small sizes, for a machine without a GPU")
    parser.add_argument("--out", type=Path, help="JSON file, written after every part")
    given = parser.parse_args(arguments)
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU; try the command without one by --device cpu --small")
    report = {}
    for name, value in parts(Place(device=device, dtype=torch.bfloat16), SMALL if given.small else BASE, given.only):
        report[name] = value
        print(f"{name}: {json.dumps(value)}", flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
