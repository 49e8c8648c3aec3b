"""Memory of a run's stages as candidates become many: the driver's and its largest worker's, stage by stage.

One process per number of candidates makes a run of short word problems: as many problems each time, and samples as
needed. An endpoint in a process of its own answers at once, with one of ten texts per problem. With ``--journal`` all
answers are in the journal before, as after a run that was killed: that is how a million of them come within minutes.

Memory is private memory (RssAnon), looked at ten times a second: Ray's object store, which is shared and has a fixed
size, does not count. CPU seconds are the driver's.

    python benchmarks/bench_streaming.py --candidates 10000 100000
    python benchmarks/bench_streaming.py --candidates 10000 100000 1000000 --journal --figure docs/images/memory.svg
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STAGES = ("problems", "candidates", "labels", "pairs", "scorer", "energies")
NUM_TEXTS = 10
_FILLER = "We add the numbers one after the other and check each sum. " * 4


def text_of(seed: int) -> str:
    """One of ten texts; a tenth of them ends in the right number, which is below ten."""
    return f"{_FILLER}\n#### {seed % NUM_TEXTS}"


def serve() -> None:
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        message = {"role": "assistant", "content": text_of(int(body["seed"]))}
        usage = {"prompt_tokens": 50, "completion_tokens": 60}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    web.run_app(app, host="127.0.0.1", port=0, print=lambda text: print(text, flush=True), access_log=None)


@contextlib.contextmanager
def endpoint() -> Iterator[str]:
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = next(line for line in process.stdout if "http://" in line)
        yield address[address.index("http://") :].split()[0].rstrip("/") + "/v1"
        process.kill()


class Peaks:
    """The largest private memory of this process and of any worker below it since the last ``take``, in MiB."""

    def __init__(self) -> None:
        self.driver = self.worker = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def take(self) -> tuple[float, float]:
        self._look()
        peaks = self.driver, self.worker
        self.driver = self.worker = 0.0
        return peaks

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(0.1)

    def _look(self) -> None:
        own, (parents, memory) = os.getpid(), _processes()
        below = (size for pid, size in memory.items() if pid != own and _is_below(pid, own, parents))
        self.driver = max(self.driver, memory.get(own, 0.0))
        self.worker = max(self.worker, *below, 0.0)


def _processes() -> tuple[dict[int, int], dict[int, float]]:
    """Parents of all processes, and private memory of this one's Python processes that are not Ray's own."""
    parents, memory = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # a process may end meanwhile
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            parents[int(folder.name)] = int(status["PPid"])
            command = (folder / "cmdline").read_bytes()
            if command.startswith(b"ray::") or b"raydebm.checker" in command or int(folder.name) == os.getpid():
                memory[int(folder.name)] = int(status.get("RssAnon", "0 kB").split()[0]) / 1024
    return parents, memory


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def recipe_tree(folder: Path, url: str, *, num_candidates: int, num_problems: int) -> dict[str, Any]:
    for split, first, count in (("train", 0, num_problems * 4 // 5), ("test", 10**6, num_problems // 5)):
        rows = (
            {"question": f"What is {first + n} + 1 - {first + n - n % 9}?", "gold": n % 9 + 1} for n in range(count)
        )
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = {split: {"split": split, "source": str(folder / f"{split}.jsonl")} for split in ("train", "test")}
    generator = {"kind": "openai", "name": "g", "model": "m", "base_url": url, "api_key_env": None}
    adapters = [{"name": f"a{n}", "rank": 2, "alpha": 4, "targets": ["Wqkv"]} for n in range(2)]
    return {
        "name": "streaming",
        "run_dir": str(folder / "run"),
        "task": {"name": "gsm8k", **sources},
        "generators": [generator | {"max_in_flight": 128}],
        "generation": {"num_samples": num_candidates // num_problems, "greedy": False, "num_in_flight": 128},
        "pairs": {"max_pairs": 2},
        "scorer": {"backbone": "embedded:encoder-mini", "max_length": 256, "adapters": adapters},
        "training": {"max_epochs": 1},
        "ray": {"gpus_per_adapter": 0},
    }


def fill_journal(context: Any) -> None:
    """Write down an answer to every request of the first pass."""
    from raydebm.generators import Journal
    from raydebm.generators.requests import answered

    journal = Journal(context.run.uri("candidates", "journal"))
    for request in context.requests(list(context.problems().values())):
        journal.put(answered(request, text_of(request.seed)))
    journal.close()


def measure(options: argparse.Namespace, url: str) -> None:
    """One run; prints a line of JSON per stage."""
    from raydebm.config import parse_recipe
    from raydebm.distributed.session import ray_session
    from raydebm.pipeline.runner import Pipeline

    with tempfile.TemporaryDirectory() as folder:
        (number,) = options.candidates
        recipe = parse_recipe(recipe_tree(Path(folder), url, num_candidates=number, num_problems=options.problems))
        if options.journal:
            prepared = Pipeline(recipe)
            prepared.make("problems")
            subprocess.run([sys.executable, __file__, "--fill", prepared.run.root], check=True)
        peaks = Peaks()
        with ray_session(recipe.ray):
            for stage in options.stages:
                started, cpu = time.monotonic(), time.process_time()
                peaks.take()
                Pipeline(recipe).make(stage)
                driver, worker = peaks.take()
                seconds, cpu_s = time.monotonic() - started, time.process_time() - cpu
                line = {"driver": driver, "worker": worker, "seconds": seconds, "cpu_s": cpu_s}
                print(json.dumps({"candidates": number, "stage": stage} | line), flush=True)


def fill(run_dir: str) -> None:
    """In a process of its own, so that its memory counts for nothing."""
    from raydebm.pipeline.context import StageContext
    from raydebm.run.directory import RunDir

    fill_journal(StageContext(RunDir(run_dir).recipe()))


def show(lines: list[dict[str, Any]], numbers: list[int], stages: list[str]) -> None:
    by_key = {(line["candidates"], line["stage"]): line for line in lines}
    print(f"{'stage':12}" + "".join(f"{number:>38,}" for number in numbers))
    print(f"{'':12}" + f"{'driver MiB':>12}{'worker MiB':>12}{'s':>7}{'CPU s':>7}" * len(numbers))
    for stage in stages:
        stage_lines = [by_key[number, stage] for number in numbers]
        cells = (f"{x['driver']:12.0f}{x['worker']:12.0f}{x['seconds']:7.0f}{x['cpu_s']:7.0f}" for x in stage_lines)
        print(f"{stage:12}" + "".join(cells))


def draw(lines: list[dict[str, Any]], stages: list[str], path: Path) -> None:
    """Memory over candidates, a line per stage: the driver's at the left, its largest worker's at the right."""
    # Only here, for matplotlib would count in the memory of the drivers that are measured.
    from matplotlib.figure import Figure

    from raydebm.evaluation.report.drawing import LINES, svg_of, tidy

    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    for axes, what in zip(figure.subplots(1, 2), ("driver", "largest worker"), strict=True):
        tidy(axes)
        for stage, (colour, mark, style) in zip(stages, LINES, strict=False):
            key = what.split()[-1]
            points = sorted((line["candidates"], line[key]) for line in lines if line["stage"] == stage)
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, linestyle=style, label=stage)
        axes.set_xlabel("candidates")
        axes.set_ylabel(f"{what}, MiB")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize="small")
    path.write_text(svg_of(figure), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--journal", action="store_true", help="answers are in the journal already")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES), help="in their order")
    parser.add_argument("--figure", type=Path, help="SVG file to write")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--fill", metavar="RUN", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
    elif options.fill:
        fill(options.fill)
    elif options.measure:
        measure(options, options.measure)
    else:
        lines: list[dict[str, Any]] = []
        with endpoint() as url:
            for number in options.candidates:
                own = ["--candidates", str(number), "--problems", str(options.problems), "--stages", *options.stages]
                command = [sys.executable, __file__, *own, "--measure", url, *["--journal"] * options.journal]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                lines += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
                print(*(line for line in lines if line["candidates"] == number), sep="\n", flush=True)
        show(lines, options.candidates, options.stages)
        if options.figure is not None:
            draw(lines, options.stages, options.figure)


if __name__ == "__main__":
    main()
