"""Training while its driver, its workers and their nodes are killed at random times.

    python tests/damage/damaged_training.py --seeds 30

Three adapters with dropout are trained on a tiny encoder, once in peace and once per seed with kills: every second
time on a cluster of two nodes, of which one is killed, else on a Ray that ends with its driver. After the last kill a
driver runs to its end, and then every file of weights must be the same to the last bit.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this one
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from scorer_parts import tiny_backbone
from victims import Driver, Nodes, add_seeds, in_turn, nodes_for, seeds_of

HERE = Path(__file__).parent
ADAPTERS = ("a0", "a1", "a2")
NUM_EPOCHS = 4
WEIGHTS = ("adapter_model.safetensors", "head.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What came of one training."""

    kills: Counter[str]
    """How often the driver, a worker and a node were killed."""
    wrong: tuple[str, ...]
    """What does not hold, in words."""
    seconds: float


class Trainings:
    """The same training, in folders of their own."""

    def __init__(self, folder: Path) -> None:
        """Train once in peace, for comparison."""
        self._folder = folder
        self._backbone = tiny_backbone(folder / "encoder")
        self._peaceful = folder / "peaceful"
        self._driver(self._peaceful).finish()

    def damaged(self, seed: int, *, kills: Sequence[str], nodes: Nodes | None = None) -> Damage:
        """Train again, with these killed one after another: ``driver``, ``worker`` or, where there are nodes, ``node``,
        each after a random number of epochs over all adapters and a random part of the next one."""
        rng, started = random.Random(seed), time.monotonic()
        run, done = self._folder / f"seed {seed}", Counter[str]()
        marks = sorted(rng.randrange(1, NUM_EPOCHS * len(ADAPTERS) - 1) for _ in kills)
        driver = self._driver(run, nodes)
        for mark, victim in zip(marks, kills, strict=True):
            due = _Due(run, mark, later_s=rng.uniform(0, 1))
            done[victim] += driver.kill(victim, when=due)
        driver.finish()
        return Damage(kills=done, wrong=tuple(self._differences(run)), seconds=time.monotonic() - started)

    def _driver(self, run: Path, nodes: Nodes | None = None) -> Driver:
        run.mkdir()
        command = [str(HERE / "training_driver.py"), str(self._backbone), str(run), str(NUM_EPOCHS)]
        return Driver(command, log=run / "driver.log", workers=lambda: _workers(run), nodes=nodes)

    def _differences(self, run: Path) -> list[str]:
        return [
            f"{name}/{file} differs from that of the training in peace"
            for name in ADAPTERS
            for file in WEIGHTS
            if (run / "scorer" / name / file).read_bytes() != (self._peaceful / "scorer" / name / file).read_bytes()
        ]


class _Due:
    """True some time after so many epochs are over."""

    def __init__(self, run: Path, num_epochs: int, *, later_s: float) -> None:
        self._run, self._num_epochs, self._later_s = run, num_epochs, later_s
        self._since: float | None = None

    def __call__(self) -> bool:
        if self._since is None and _epochs(self._run) >= self._num_epochs:
            self._since = time.monotonic()
        return self._since is not None and time.monotonic() - self._since >= self._later_s


def _epochs(run: Path) -> int:
    """Epochs that are over, of all adapters."""
    finished = [name for name in ADAPTERS if (run / "scorer" / name / "finished.json").exists()]
    under_way = [
        file for file in run.glob("scorer/progress/*.epochs/[0-9]*.json") if file.parent.name[:2] not in finished
    ]
    return NUM_EPOCHS * len(finished) + len(under_way)


def _workers(run: Path) -> list[int]:
    pids: set[int] = set()
    for file in run.glob("scorer/progress/*.epochs/starts.json"):
        try:
            pids.update(json.loads(file.read_text())["pids"])
        except (FileNotFoundError, ValueError):  # it is being replaced
            continue
    return sorted(pids)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_seeds(parser)
    parser.add_argument("--kills", type=int, default=2, help="of each training, in turn")
    given = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        trainings = Trainings(Path(folder))
        for seed in seeds_of(given):
            with nodes_for(seed, log=Path(folder) / "nodes.log") as nodes:
                damage = trainings.damaged(seed, kills=in_turn(given.kills, nodes=nodes), nodes=nodes)
            broken += bool(damage.wrong)
            faults = "".join(f"; {each}" for each in damage.wrong)
            sys.stdout.write(f"seed {seed}: killed {dict(damage.kills)}, {damage.seconds:.0f} s{faults}\n")
            sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
