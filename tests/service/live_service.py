"""The service on real Ray Serve that the live modules share: ``serve_config.yaml`` over one run, started once.

It asks for keys, sends slow requests to endpoints a second time, stores decisions at once and sends its traces to a
collector. It serves a recorded generator, which is wrong in pass 1 and right in pass 2, and one for each model of
``upstream``, but not the run's local model. Some never answer, so requests choose, by named policies or by themselves.

Modules run in any order: a test that changes the service takes its change back, and what it counts is a difference.
"""

import hashlib
import json
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from otlp_collector import Collector
from served_config import deployed
from upstream import MODELS, Upstream

from raydebm.run.directory import RunDir
from raydebm.run.tables import SplitProblem

KEY = "d00d" * 10
"""Of the one client."""
HEADERS = {"Authorization": f"Bearer {KEY}"}
POLICIES = {f"{name}-only": {"generators": [name]} for name in ("recorded", "endpoint", "hanging")}


class Turns:
    """Ray has one Serve, so services take turns. Whoever asks for the one that runs, gets it as it is."""

    def __init__(self):
        self._name, self._value, self._running = None, None, ExitStack()

    def take(self, name, start):
        """
        Args:
            name: of the service.
            start: gives a context manager within which it runs; called when it does not run.
        """
        if self._name != name:
            self.end()
            self._value = self._running.enter_context(start())
            self._name = name
        return self._value

    def end(self):
        self._name = None
        self._running.close()


@dataclass(frozen=True)
class LiveService:
    url: str
    folder: Path
    run_dir: str
    tree: dict[str, Any]
    """The Serve configuration, complete."""
    upstream: Upstream
    collector: Collector

    def post(self, path, body, **options):
        return httpx.post(f"{self.url}{path}", json=body, timeout=600, **{"headers": HEADERS, **options})

    def get(self, path, **options):
        return httpx.get(f"{self.url}{path}", timeout=600, **{"headers": HEADERS, **options})

    def ask(self, problem, policy="recorded-only", *, headers=None, **changes):
        """POST /v1/triage."""
        return self.post(
            "/v1/triage", {"problem": problem, "policy": policy, **changes}, headers=HEADERS | (headers or {})
        )


@contextmanager
def running(folder, *, live_run, config, problem, port):
    """The service, its endpoint and its collector.

    Args:
        folder: empty, for the run directory, the keys, the configuration and the decisions.
        live_run: the run to copy.
        config: path of serve_config.yaml.
        problem: the run's only test problem.
        port: of the service.
    """
    with ExitStack() as servers:
        upstream, collector = Upstream(), Collector()
        servers.callback(upstream.close)
        servers.callback(collector.close)
        run = _run(folder / "run", live_run, upstream, problem)
        entry = {"name": "team", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}
        (folder / "keys.yaml").write_text(yaml.safe_dump({"keys": [entry]}), encoding="utf-8")
        args = {
            "run_dir": run.root,
            "generators": ["recorded", *MODELS],
            "device": "cpu",
            "policies": POLICIES,
            "limits": {"keys_file": str(folder / "keys.yaml")},
            "records": {"folder": str(folder / "kept")},
        }
        tree = _tree(config, args, port=port, collector=collector)
        path = folder / "serve_config.yaml"
        path.write_text(json.dumps(tree), encoding="utf-8")
        with deployed(path, port=port):
            yield LiveService(f"http://127.0.0.1:{port}", folder, run.root, tree, upstream, collector)


def _run(root, live_run, upstream, problem):
    """The live run with the endpoint's models among its generators, and with its problem in the table."""
    run = RunDir(str(shutil.copytree(live_run, root)))
    run.write_problems([SplitProblem(problem=problem, split="test")])
    recipe = run.read_json("recipe.json")
    endpoint = {"kind": "openai", "base_url": upstream.url, "api_key_env": None, "max_retries": 0, "timeout_s": 600.0}
    asked = [{**endpoint, "name": model, "model": model, "num_samples": 1} for model in MODELS]
    run.write_json({**recipe, "generators": [*recipe["generators"], *asked]}, "recipe.json")
    return run


def _tree(config, args, *, port, collector):
    """serve_config.yaml with these arguments, traces that are sent at once, and one scorer replica, whose counters are
    then those of all."""
    tree = yaml.safe_load(config.read_text())
    tree["http_options"] |= {"host": "127.0.0.1", "port": port}
    application = tree["applications"][0]
    application["args"] |= args
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    for deployment in application["deployments"]:
        deployment["ray_actor_options"] |= {"runtime_env": {"env_vars": variables}}
        if deployment["name"] == "TriageIngress":
            deployment["num_replicas"] = 1
        if deployment["name"] == "ScorerDeployment":
            deployment["autoscaling_config"]["max_replicas"] = 1
    return tree
