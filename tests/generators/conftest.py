import importlib.util
import sys
from pathlib import Path

import pytest

from raydebm.records import GenerationRequest, Sampling

sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))  # for processes


def _load_server_module():
    """The server is a program of its own, and tests are no package: load it by its path."""
    path = Path(__file__).with_name("misbehaving_server.py")
    spec = importlib.util.spec_from_file_location("misbehaving_server", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["misbehaving_server"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server():
    with _load_server_module().MisbehavingServer() as running:
        yield running


@pytest.fixture
def ask():
    """Make a request whose last message tells the server how to behave."""

    def make(content="p: ok", *, generator="g", sample_index=0, sampling=None, problem_id=None):
        return GenerationRequest(
            task="toy",
            problem_id=problem_id or content.partition(":")[0],
            generator=generator,
            messages=({"role": "system", "content": "be brief"}, {"role": "user", "content": content}),
            sampling=sampling or Sampling(max_tokens=64),
            seed=1000 + sample_index,
            sample_index=sample_index,
        )

    return make
