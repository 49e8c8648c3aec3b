"""A task of another package, installed as other packages do it: by an entry point, before any worker starts."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from raydebm.extensions import load_extensions
from raydebm.pipeline.ray.session import ENVIRONMENT, OWN_CLUSTER_ENVIRONMENT

PLUG_IN = '''
"""A task whose checker does what the completion says."""
import os
import time

from raydebm.tasks.constraints import Constraint, Finding
from raydebm.records import Verdict
from raydebm.tasks import add_task
from raydebm.tasks.base import Judgement, TaskDefaults


class Moody:
    name = "moody"
    defaults = TaskDefaults(max_length=64, batch_size=4, patience=1, labels_per_worker=400)
    constraints = (
        Constraint(
            name="short",
            check=lambda problem, answer: [Finding(penalty=1.0)] if len(answer) > 8 else [],
            message="too long",
            weight=0.5,
        ),
    )

    def parse(self, problem, text):
        print("plug-ins may print")
        return None if text == "mumble" else text

    def render(self, problem, answer):
        return answer

    def vote_key(self, problem, answer):
        return answer

    def judge(self, problem, gold, text):
        if text == "hang":
            time.sleep(600)
        if text == "crash":
            raise RuntimeError("no")
        if text == "exit":
            os._exit(3)
        if text == "who":
            return Judgement(verdict=Verdict.INCORRECT, reason=str(os.getpid()))
        return Judgement(verdict=Verdict.CORRECT if text == gold.value["text"] else Verdict.INCORRECT)


add_task("moody", Moody)
'''


def install_plug_in() -> None:
    """Make the task ``moody`` known to this process and to all that it starts."""
    folder = Path(tempfile.mkdtemp(prefix="raydebm-plug-in-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "moody_task.py").write_text(PLUG_IN)
    info = folder / "moody_task-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody-task\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[raydebm.extensions]\nmoody = moody_task\n")
    added = [str(folder), str(Path(__file__).parents[1] / "helpers")]  # the latter for scorer_parts
    sys.path[:0] = added
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*added, os.environ.get("PYTHONPATH", "")]))
    load_extensions.cache_clear()  # a module that was collected earlier may have asked for the tasks


# What ray_session sets for a cluster of its own; `local_ray` is started without it.
for name, value in (ENVIRONMENT | OWN_CLUSTER_ENVIRONMENT).items():
    os.environ.setdefault(name, value)
install_plug_in()  # at import, because a cluster that a test starts hands on the environment of that moment


@pytest.fixture(scope="session")
def backbone(tmp_path_factory):
    from scorer_parts import tiny_backbone

    return tiny_backbone(tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="session")
def five(local_ray, backbone, tmp_path_factory):
    """(run directory, summary, progress, epochs) of five adapters on three pretend GPUs, with the training's curves for
    TensorBoard, where that is installed."""
    from scorer_parts import recipe_for, train

    folder = tmp_path_factory.mktemp("five")
    progress, epochs = [], []
    summary = train(
        recipe_for(backbone),
        folder,
        on_progress=lambda done, total: progress.append((done, total)),
        on_epoch=lambda name, facts: epochs.append((name, facts["metrics"]["epoch"])),
    )
    return folder, summary, progress, epochs
