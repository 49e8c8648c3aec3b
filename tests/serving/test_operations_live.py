"""Traces and changes of the running service on real Serve: an OTLP receiver, an endpoint, other adapters under load."""

import json
import shutil
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from ray.serve.schema import ServeDeploySchema

from raydebm.serving.launch import deployed, read_serve_config
from raydebm.serving.openapi import PUZZLE
from raydebm.store import RunDir

pytestmark = [pytest.mark.ray, pytest.mark.slow]

TRACE_ID, CLIENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ARGS = {
    "threads": 1,
    "device": "cpu",
    "dtype": "float32",
    "policies": {"recorded-only": {"generators": ["recorded"]}, "endpoint-only": {"generators": ["endpoint"]}},
}
SHIFT = 10.0
"""What the second ensemble adds to every energy of the first."""


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    is_error: bool
    attributes: dict = field(hash=False)
    resource: dict = field(hash=False)


class Collector(ThreadingHTTPServer):
    """A small OTLP/HTTP receiver: parses what arrives and keeps the spans."""

    daemon_threads = True

    def __init__(self):
        self._lock, self._spans, self.bodies = threading.Lock(), [], []
        super().__init__(("127.0.0.1", 0), _Receiving)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, body):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = [
            _span(span, _values(of_resource.resource.attributes))
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]
        with self._lock:
            self.bodies.append(body)
            self._spans.extend(found)

    def spans(self, trace_id):
        """Those of one trace that have arrived, in any order."""
        with self._lock:
            return [span for span in self._spans if span.trace_id == trace_id]


class _Receiving(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            self.server.take(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def _span(span, resource):
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        is_error=span.status.code == 2,
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(attributes):
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}


class Endpoint(ThreadingHTTPServer):
    """Completes every chat with one text, and remembers the headers it was sent."""

    daemon_threads = True

    def __init__(self, text):
        self.text, self.headers = text, []
        super().__init__(("127.0.0.1", 0), _Completing)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Completing(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        choice = {"index": 0, "message": {"role": "assistant", "content": self.server.text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        body = json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def endpoint():
    server = Endpoint('{"Ava": "knave", "Zoey": "knight"}')
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def collector():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra raydebm[otel] is not installed")
    server = Collector()
    yield server
    server.shutdown()
    server.server_close()


def shifted(source, target):
    """The same ensemble with SHIFT added to every energy, as other training would leave it."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    for head in target.glob("*/head.safetensors"):
        weights = load_file(head)
        weights["out.bias"] += SHIFT
        save_file(weights, head)
    record = json.loads((target / "ensemble.json").read_text())
    record["meta"]["name"] = "shifted"
    (target / "ensemble.json").write_text(json.dumps(record))
    return target


@pytest.fixture(scope="module")
def folder(live_run, endpoint, tmp_path_factory):
    found = tmp_path_factory.mktemp("operations")
    shutil.copytree(live_run, found / "run")
    shifted(found / "run" / "scorer", found / "shifted")
    run = RunDir(str(found / "run"))
    recipe = run.read_json("recipe.json")
    url = f"http://127.0.0.1:{endpoint.server_address[1]}/v1"
    asked = {"kind": "openai", "name": "endpoint", "model": "m", "base_url": url, "api_key_env": None}
    recipe["generators"] = [recipe["generators"][0], asked]
    run.write_json(recipe, "recipe.json")
    return found


@pytest.fixture(scope="module")
def tree(folder, collector, repository, new_port):
    """serve_config.yaml for this module: everything is sent to the collector, at once."""
    found = read_serve_config(repository / "serve_config.yaml")
    found["http_options"] |= {"host": "127.0.0.1", "port": new_port()}
    application = found["applications"][0]
    application["args"] = {**ARGS, "run_dir": str(folder / "run")}
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    for deployment in application["deployments"]:
        deployment["ray_actor_options"] = {"num_cpus": 0.1, "runtime_env": {"env_vars": variables}}
        deployment.pop("autoscaling_config", None)
    return found


@pytest.fixture(scope="module")
def url(local_ray, tree, tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "serve_config.yaml"
    path.write_text(json.dumps(tree))
    with deployed(path, port=tree["http_options"]["port"], args={}, timeout_s=600) as address:
        yield address


@pytest.fixture
def change(tree, url):
    """As ``serve deploy`` with another ``user_config`` of the ingress."""
    from ray.serve.context import _get_global_client

    def deploy(**user_config):
        ingress = tree["applications"][0]["deployments"][0]
        assert ingress["name"] == "TriageIngress"
        ingress["user_config"] = user_config
        _get_global_client().deploy_apps(ServeDeploySchema.model_validate(tree), _blocking=False)

    return deploy


def health(url):
    """What /health says once every part has answered it in time (a busy machine answers 503 first)."""
    replies = []

    def answered():
        replies.append(httpx.get(f"{url}/health", timeout=60))
        return replies[-1].status_code == 200

    assert eventually(answered), replies[-1].text
    return replies[-1].json()


def eventually(condition, *, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def ask(url, puzzle, policy, **changes):
    headers = changes.pop("headers", {})
    body = {"problem": puzzle, "policy": policy, "return_candidates": True, **changes}
    return httpx.post(f"{url}/v1/triage", json=body, headers=headers, timeout=120)


# ---- traces ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(url, collector, endpoint):
    """The spans of one request to the endpoint's generator, and what the endpoint was sent."""
    sent = {"traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN}-01", "X-Request-ID": "traced-1"}
    reply = ask(url, PUZZLE, "endpoint-only", num_samples=2, headers=sent)
    assert reply.status_code == 200, reply.text
    names = {"POST /v1/triage", "triage", "pass", "generate", "check", "score"}
    names |= {"generator", "candidate", "constraints", "ensemble"}

    def complete():
        spans = collector.spans(TRACE_ID)
        found = [span.name for span in spans]
        parents = {span.span_id for span in spans} | {CLIENT_SPAN}
        return names <= set(found) and found.count("candidate") == 2 and {span.parent_id for span in spans} <= parents

    assert eventually(complete), [span.name for span in collector.spans(TRACE_ID)]
    return collector.spans(TRACE_ID)


def one(trace, name):
    found = [span for span in trace if span.name == name]
    assert len(found) == 1, [span.name for span in trace]
    return found[0]


def test_the_trace_goes_on_from_the_clients(trace):
    found = one(trace, "POST /v1/triage")
    assert found.parent_id == CLIENT_SPAN
    assert found.attributes["http.response.status_code"] == 200
    assert found.attributes["raydebm.request_id"] == "traced-1"


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("triage", "POST /v1/triage"),
        ("pass", "triage"),
        ("generate", "pass"),
        ("generator", "generate"),
        ("candidate", "generator"),
        ("constraints", "check"),
        ("ensemble", "score"),
    ],
)
def test_every_part_of_the_work_has_its_span_below_what_asked_for_it(trace, child, parent):
    parents = {span.span_id for span in trace if span.name == parent}
    children = [span for span in trace if span.name == child]
    assert children
    assert {span.parent_id for span in children} <= parents


def test_the_endpoint_is_told_the_span_of_its_candidate(trace, endpoint):
    candidates = {f"00-{TRACE_ID}-{span.span_id}-01" for span in trace if span.name == "candidate"}
    assert {headers.get("traceparent") for headers in endpoint.headers} == candidates
    assert len(candidates) == 2


def test_the_decision_is_told(trace):
    found = one(trace, "triage").attributes
    assert (found["raydebm.task"], found["raydebm.decision"]) == ("knights_knaves", "accept")
    assert (found["raydebm.num_candidates"], found["raydebm.num_failed"]) == (2, 0)
    assert found["raydebm.sigma"] >= 0


def test_each_part_names_itself(trace):
    components = {span.name: span.resource["service.component"] for span in trace}
    assert [components[name] for name in ("triage", "generator", "ensemble", "constraints")] == [
        "ingress",
        "generator",
        "scorer",
        "constraints",
    ]
    assert {span.resource["service.name"] for span in trace} == {"raydebm"}


def test_no_text_of_a_problem_or_a_candidate_leaves_with_a_trace(trace, collector):
    for words in (b"inhabited", b'knave"', b"Zoey"):
        assert not any(words in body for body in collector.bodies)


# ---- changes --------------------------------------------------------------------------------------------------------


class Load:
    """Clients that ask without a pause; every answer is kept."""

    def __init__(self, url, puzzle, *, clients=3):
        self.replies, self._ending, self._url, self._puzzle = [], threading.Event(), url, puzzle
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def _ask(self):
        while not self._ending.is_set():
            self.replies.append(ask(self._url, self._puzzle, "recorded-only"))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout=120)


def members_of(reply):
    return {item["candidate_id"]: item["members"] for item in reply.json()["candidates"]}


def test_adapters_and_policy_change_under_load_and_no_request_fails_or_mixes_them(url, puzzle, folder, change):
    before = health(url)
    policy = {**before["policies"]["knights_knaves"], "theta_sigma": 500.0}
    Path(folder / "policy.json").write_text(json.dumps(policy))
    with Load(url, puzzle) as load:
        assert eventually(lambda: len(load.replies) >= 3)
        change(checkpoint=str(folder / "shifted"), policy=str(folder / "policy.json"), policies=ARGS["policies"])
        assert eventually(lambda: health(url)["versions"] != before["versions"])
        count = len(load.replies)
        assert eventually(lambda: len(load.replies) >= count + 6)  # those that had begun, and some more
    after = health(url)
    assert {reply.status_code for reply in load.replies} == {200}
    assert after["policies"]["knights_knaves"]["theta_sigma"] == 500.0
    assert after["warnings"] == []

    by_version = {}
    for reply in load.replies:
        versions = reply.json()["versions"]
        by_version.setdefault((versions["checkpoint"], versions["policy"]), []).append(members_of(reply))
    old, new = ((found["versions"]["checkpoint"], found["versions"]["policy"]) for found in (before, after))
    assert set(by_version) == {old, new}
    first = by_version[old][0]
    for shift, answers in ((0.0, by_version[old]), (SHIFT, by_version[new])):
        for members in answers:  # every candidate of both passes, by the ensemble that the answer names
            for name, energies in members.items():
                assert energies == pytest.approx([energy + shift for energy in first[name]], abs=1e-3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"checkpoint": "/nowhere/scorer"}, "no trained ensemble"),
        ({"policy": "/nowhere/policy.json"}, "does not exist"),
        ({"device": "cpu"}, "cannot be changed while the service runs"),
        ({"policies": {"odd": {"theta_sigma": -1}}}, "theta_sigma"),
    ],
    ids=["adapters", "policy", "key", "named-policy"],
)
def test_a_bad_change_is_refused_and_what_runs_goes_on(url, puzzle, change, wrong, words):
    before = health(url)
    change(**wrong)
    assert eventually(lambda: any(words in warning for warning in health(url)["warnings"]))
    assert health(url)["versions"] == before["versions"]
    assert ask(url, puzzle, "recorded-only").status_code == 200


def test_adapters_that_do_not_load_are_refused_by_the_scorer(url, puzzle, folder, change):
    torn = shutil.copytree(folder / "run" / "scorer", folder / "torn")
    (torn / "a1" / "head.safetensors").write_bytes(b"torn")
    record = json.loads((torn / "ensemble.json").read_text())
    record["meta"]["name"] = "torn"
    (torn / "ensemble.json").write_text(json.dumps(record))
    before = health(url)
    change(checkpoint=str(torn))
    assert eventually(lambda: any("head.safetensors cannot be read" in words for words in health(url)["warnings"]))
    assert health(url)["versions"] == before["versions"]
    assert ask(url, puzzle, "recorded-only").status_code == 200


def test_a_good_change_after_a_bad_one_takes_the_warning_away(url, puzzle, change, folder):
    change(policies={**ARGS["policies"], "one-pass": {"max_passes": 1, "generators": ["recorded"]}}, revision=2)
    assert eventually(lambda: ask(url, puzzle, "one-pass").status_code == 200)
    assert health(url)["warnings"] == []
    assert ask(url, puzzle, "one-pass").json()["num_passes"] == 1
