"""Memory of one scorer replica that holds the ensembles of several tasks.

    python benchmarks/bench_tasks_memory.py --runs runs/knights_knaves runs/gsm8k ...

Checkpoints are loaded one after the other as a replica does (``serving.ray.ensembles``), on one backbone where they
share it, and for comparison, in another process, each on a backbone of its own. Each scores one text, so that mapped
weights are read and torch has what it needs. Figures are the resident memory of the whole process in MB (Linux).
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
from pathlib import Path

from raydebm.run.ensemble_file import read_ref
from raydebm.serving.ray.ensembles import Ensembles


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def held(folders: list[str], is_shared: bool) -> list[float]:
    """MB after each checkpoint."""
    return asyncio.run(_held(folders, is_shared))


async def _held(folders: list[str], is_shared: bool) -> list[float]:
    replicas: list[Ensembles] = []
    megabytes: list[float] = []
    for folder in folders:
        if not (is_shared and replicas):
            replicas.append(Ensembles(device="cpu", dtype="float32", threads=1))
        scorer = await replicas[-1].get(read_ref(folder))
        scorer.score([("a question", "an answer")])
        gc.collect()
        megabytes.append(_resident_mb())
    return megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", required=True)
    folders = [str(Path(run).resolve() / "scorer") for run in parser.parse_args().runs]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        shared, alone = pool.starmap(held, [(folders, True), (folders, False)], chunksize=1)
    print("| tasks | one backbone, MB | a backbone each, MB |\n|---:|---:|---:|")
    for count, (one, each) in enumerate(zip(shared, alone, strict=True), start=1):
        print(f"| {count} | {one:.0f} | {each:.0f} |")


if __name__ == "__main__":
    main()
