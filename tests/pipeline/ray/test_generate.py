"""Generation through Ray Data: order, errors as rows, resuming, and what survives a death."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
import torch
from misbehaving_server import MisbehavingServer
from processes import is_running, journal_pids, num_journaled
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from raydebm.config import parse_recipe
from raydebm.errors import PoolError, ResourceError
from raydebm.generators.account import SHARED_PASSES, JournalAccount
from raydebm.pipeline.ray import candidate_blocks
from raydebm.pipeline.ray.generate import generate
from raydebm.records import GenerationRequest, Sampling
from raydebm.run.directory import RunDir

pytestmark = pytest.mark.ray


@pytest.fixture
def server():
    with MisbehavingServer(latency_s=0.02) as running:
        yield running


def ask(content, *, generator="g", seed=0, temperature=0.7):
    return GenerationRequest(
        task="toy",
        problem_id=content.partition(":")[0],
        generator=generator,
        messages=({"role": "user", "content": content},),
        sampling=Sampling(max_tokens=12, temperature=temperature),
        seed=seed,
    )


def http(url, name="g", **settings):
    return {
        "kind": "openai", "name": name, "model": "m", "base_url": url, "api_key_env": None, "max_retries": 1,
        "timeout_s": 60,
    } | settings  # fmt: skip


def recipe_of(*generators, **generation):
    tree = {"name": "test", "task": {"name": "toy"}, "generators": list(generators), "generation": generation}
    return parse_recipe(tree)


def table(run, stage="candidates"):
    return list(run.candidates(stage))


@pytest.fixture
def run(tmp_path):
    return RunDir(str(tmp_path / "run"))


def test_rows_stand_in_the_order_of_the_requests(local_ray, server, run):
    recipe = recipe_of(http(server.url, "g"), http(server.url, "h"), num_processes=2)
    requests = [ask(f"p{i}: ok", generator="gh"[i % 2]) for i in range(150)]
    progress = []
    summary = generate(requests, recipe=recipe, run=run, on_progress=lambda done, total: progress.append((done, total)))
    assert [candidate.candidate_id for candidate in table(run)] == [request.candidate_id for request in requests]
    assert (summary.num_ok, summary.num_failed, summary.completion_tokens) == (150, 0, 3000)
    assert progress[-1] == (150, 150)
    assert run.manifest("candidates")["num_ok"] == 150


def test_failed_requests_are_rows_and_asked_again_next_time(local_ray, server, run):
    recipe = recipe_of(http(server.url), max_failed_frac=1.0)
    requests = [ask("a: ok"), ask("b: 500, 500, ok"), ask("c: 400")]
    first = generate(requests, recipe=recipe, run=run, stage="one")
    assert (first.num_ok, first.num_failed) == (1, 2)
    assert [candidate.text is None for candidate in table(run, "one")] == [False, True, True]
    num_requests = server.num_requests
    second = generate(requests, recipe=recipe, run=run, stage="one")
    assert (second.num_ok, second.num_reused, second.num_failed) == (2, 1, 1)
    assert server.num_requests == num_requests + 2


def test_too_many_failures(local_ray, server, run):
    recipe = recipe_of(http(server.url), max_failed_frac=0.5)
    requests = [ask("a: ok"), ask("b: 400"), ask("c: 400")]
    with pytest.raises(PoolError, match=r"2 of 3 requests failed.*2 x .*must not be empty.*1 answers are kept"):
        generate(requests, recipe=recipe, run=run)
    assert run.manifest("candidates") is None


def test_in_flight_is_bounded_over_all_endpoints(local_ray, server, run):
    """Nothing is answered before ten are there; the next ones have a while to come too early."""
    server.may_answer = lambda number: server.max_in_flight >= 10
    recipe = recipe_of(http(server.url, "g"), http(server.url, "h"), num_in_flight=10)
    generate([ask(f"p{i}: ok", generator="gh"[i % 2]) for i in range(200)], recipe=recipe, run=run)
    assert server.max_in_flight == 10


def test_endpoint_is_kept_full(local_ray, server, run):
    """64 in flight from the first full house to the last request, over all block ends: each request is answered when
    the 63 after it are there, so a place that stays empty ends it all. ``benchmarks/bench_generation.py`` prints rates
    at 256 in flight."""
    server.latency_s, server.may_answer = 0.0, lambda number: server.num_requests >= min(number + 63, 256)
    recipe = recipe_of(http(server.url, max_in_flight=64))
    assert generate([ask(f"p{i}: ok") for i in range(256)], recipe=recipe, run=run).num_ok == 256
    assert server.in_flight_at_arrival[63:] == [64] * 193


def test_budget_leaves_the_rest_for_a_later_run(local_ray, server, run):
    requests = [ask(f"p{i}: priced") for i in range(12)]
    tight = recipe_of(http(server.url, max_in_flight=1), max_usd=1.0, max_failed_frac=1.0)
    first = generate(requests, recipe=tight, run=run)
    assert (first.num_ok, first.usd, first.num_failed) == (4, 1.0, 8)
    assert "budget of $1 reached" in first.errors[0][0]
    second = generate(requests, recipe=recipe_of(http(server.url, max_in_flight=1), max_usd=10.0), run=run)
    assert (second.num_ok, second.num_reused) == (12, 4)
    assert server.num_requests == 12


def test_budget_is_of_all_stages_together(local_ray, server, run):
    recipe = recipe_of(http(server.url, max_in_flight=1), max_usd=1.0, max_failed_frac=1.0)
    generate([ask(f"p{i}: priced") for i in range(3)], recipe=recipe, run=run)
    later = generate([ask(f"q{i}: priced") for i in range(3)], recipe=recipe, run=run, stage="regenerated/test-1")
    assert (later.num_ok, later.num_failed) == (1, 2)
    assert "budget of $1 reached (spent $1.0000)" in later.errors[0][0]
    assert server.num_requests == 4


def test_two_runs_with_one_account_pay_once_and_have_one_budget(local_ray, server, tmp_path):
    """Answers cost 25 cents. Of a dollar the first run spends 75; the second has one of its answers, and money for one
    of two others."""
    recipe = recipe_of(http(server.url, max_in_flight=1), max_usd=1.0, max_failed_frac=1.0)
    account = JournalAccount(RunDir(str(tmp_path)), SHARED_PASSES)
    first, second = (RunDir(str(tmp_path / name)) for name in ("first", "second"))
    asked = [ask(f"p{index}: priced") for index in range(5)]
    generate(asked[:3], recipe=recipe, run=first, stage="regenerated/test-1", account=account)

    summary = generate(asked[2:], recipe=recipe, run=second, stage="regenerated/validation-1", account=account)

    assert (summary.num_ok, summary.num_reused, summary.num_failed, server.num_requests) == (2, 1, 1, 4)
    assert [candidate.problem_id for candidate in table(second, "regenerated/validation-1")] == ["p2", "p3", "p4"]
    assert not second.exists("regenerated", "validation-1", "journal")


def test_a_server_that_cannot_have_its_turn_stops_before_anything_is_sent(local_ray, server, run):
    recipe = recipe_of(http(server.url), {"kind": "vllm", "name": "v", "model": "m", "python": "no-such-python"})
    with pytest.raises(ResourceError, match="'no-such-python' is not a program"):
        generate([ask("a: ok", generator=name) for name in "gv"], recipe=recipe, run=run)
    assert server.num_requests == 0


VLLM_PROGRAM = f"""\
#!{sys.executable}
import http.server, json, os, sys
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
with open(os.path.join(os.path.dirname(__file__), "started"), "a") as log:
    log.write(f"{{options['--served-model-name']}} {{os.getpid()}}\\n")
class Answer(http.server.BaseHTTPRequestHandler):
    def reply(self, value):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())
    def do_GET(self):
        self.reply({{}})
    def do_POST(self):
        size = int(self.headers["Content-Length"])
        model = json.loads(self.rfile.read(size))["model"]
        started = [line.split() for line in open(os.path.join(os.path.dirname(__file__), "started"))]
        others = [int(pid) for _, pid in started if int(pid) != os.getpid()]
        alone = not any(os.path.exists(f"/proc/{{pid}}") for pid in others)
        text = f"{{model}} {{'alone' if alone else 'in company'}}"
        self.reply({{"choices": [{{"message": {{"content": text}}}}]}})
http.server.ThreadingHTTPServer((options["--host"], int(options["--port"])), Answer).serve_forever()
"""
"""Says of each request whether another server of the test is up."""


def test_servers_take_turns_and_end(local_ray, server, run, tmp_path):
    program = tmp_path / "vllm"
    program.write_text(VLLM_PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    servers = [{"kind": "vllm", "name": name, "model": f"org/{name}", "python": str(program)} for name in "vw"]
    recipe = recipe_of(http(server.url), *servers)
    requests = [ask(f"p{place}: ok", generator="gvw"[place % 3]) for place in range(6)]

    summary = generate(requests, recipe=recipe, run=run)

    assert summary.num_ok == 6
    assert [row.text for row in table(run) if row.generator != "g"] == ["org/v alone", "org/w alone"] * 2
    started = [line.split() for line in (tmp_path / "started").read_text().splitlines()]
    assert [model for model, _ in started] == ["org/v", "org/w"]
    assert not any(is_running(int(process_id)) for _, process_id in started)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    """A random Llama over single words, as a folder that any Auto class loads."""
    folder = tmp_path_factory.mktemp("model")
    words = ["<pad>", "<unk>", "<eos>", *(f"w{i}" for i in range(60))]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    fast.save_pretrained(folder)
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def side_by_side(local_ray, tiny_model, tmp_path_factory):
    """(summary, candidates) of an endpoint, a local model, and one that is not there."""
    run = RunDir(str(tmp_path_factory.mktemp("side-by-side")))
    local = {"kind": "transformers", "name": "l", "model": tiny_model, "batch_size": 4}
    missing = {"kind": "transformers", "name": "x", "model": str(Path(tiny_model) / "no model")}
    requests = [ask(f"w{i}: ok", generator="gl"[i % 2], seed=i) for i in range(20)]
    with MisbehavingServer(latency_s=0.02) as server:
        recipe = recipe_of(http(server.url), local, missing)
        summary = generate([*requests, ask("a: ok", generator="x")], recipe=recipe, run=run)
    return summary, table(run)


def test_endpoint_and_local_model_run_side_by_side(side_by_side):
    summary, candidates = side_by_side
    assert [candidate.generator for candidate in candidates] == ["g", "l"] * 10 + ["x"]
    # A random model may end its text at once, which is an error row; most do not.
    assert sum(candidate.text is not None for candidate in candidates if candidate.generator == "l") >= 7
    assert summary.num_ok >= 17


def test_model_that_cannot_be_loaded_costs_only_its_own_rows(side_by_side):
    summary, candidates = side_by_side
    assert all(candidate.text is not None for candidate in candidates if candidate.generator == "g")
    assert dict(summary.failed_by_generator)["x"] == 1
    assert "no model" in candidates[-1].error


def test_death_of_the_generating_actor_repeats_only_what_was_in_flight(local_ray, server, run, eventually):
    """From the 400th request on none is answered before the actor is dead.

    With so few in flight the actor works on four blocks of 64 at once, so of 399 answers at least 147 are in complete
    blocks, and the driver sees three of them, whatever the order.
    """
    in_flight = 16
    requests = [ask(f"p{i}: ok") for i in range(640)]
    killed, asked, journaled = [], [], []
    server.may_answer = lambda number: number < 400 or bool(killed)

    def kill_once(done, total):
        if done >= 128 and not killed:
            (pid,) = journal_pids(run)
            os.kill(pid, signal.SIGKILL)
            assert eventually(lambda: not is_running(pid))
            asked.append(server.num_requests)
            journaled.append(num_journaled(run))
            killed.append(pid)

    recipe = recipe_of(http(server.url, max_in_flight=in_flight), num_in_flight=in_flight)
    summary = generate(requests, recipe=recipe, run=run, on_progress=kill_once)
    assert len(journal_pids(run) - set(killed)) == len(killed) == 1
    assert (summary.num_ok, summary.num_failed) == (640, 0)
    again = server.num_requests - asked[0]
    assert abs(again - (640 - journaled[0])) <= in_flight  # those that were under way when the server was asked


def test_few_requests_go_to_tasks_that_start_no_actor(local_ray, server, run, monkeypatch):
    """Two processes may have ten requests in flight each: twenty go to tasks, one more to actors."""
    started, in_actors = [], candidate_blocks._in_actors

    def noted(*of, **how):
        started.append(how["num_actors"])
        return in_actors(*of, **how)

    monkeypatch.setattr(candidate_blocks, "_in_actors", noted)
    recipe = recipe_of(http(server.url), num_processes=2, num_in_flight=10)

    summary = generate([ask(f"p{i}: ok") for i in range(20)], recipe=recipe, run=run)
    assert (summary.num_ok, started) == (20, [])

    generate([ask(f"q{i}: ok") for i in range(21)], recipe=recipe_of(http(server.url), num_in_flight=20), run=run)
    assert started == [1]


def test_death_of_the_generating_task_repeats_only_what_was_in_flight(local_ray, server, run, eventually):
    """From the 20th request on none is answered before the task's process is dead, and four are under way then."""
    killed = []
    server.may_answer = lambda number: number <= 20 or bool(killed)

    def kill_once():
        assert eventually(lambda: server.num_requests == 24 and num_journaled(run) == 20)
        (pid,) = journal_pids(run)
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not is_running(pid))
        killed.append(pid)

    killer = threading.Thread(target=kill_once)
    killer.start()
    summary = generate(
        [ask(f"p{i}: ok") for i in range(40)], recipe=recipe_of(http(server.url, max_in_flight=4)), run=run
    )
    killer.join()

    assert (summary.num_ok, summary.num_failed, server.num_requests) == (40, 0, 24 + 20)
    assert len(journal_pids(run) - set(killed)) == len(killed) == 1


def test_callers_failure_halfway_loses_nothing(local_ray, server, run, eventually):
    """And nothing more is asked: from the 400th request on (see above) none is answered before the actor is gone."""
    requests = [ask(f"p{i}: ok") for i in range(640)]
    recipe = recipe_of(http(server.url, max_in_flight=8), num_in_flight=8)
    is_gone = threading.Event()
    server.may_answer = lambda number: number < 400 or is_gone.is_set()

    def fail_halfway(done, total):
        if done >= 128:
            raise RuntimeError("the driver has had enough")

    with pytest.raises(RuntimeError, match="had enough"):
        generate(requests, recipe=recipe, run=run, on_progress=fail_halfway)
    assert eventually(lambda: not any(map(is_running, journal_pids(run))))
    asked, journaled = server.num_requests, num_journaled(run)
    is_gone.set()
    summary = generate(requests, recipe=recipe, run=run)
    assert (summary.num_ok, summary.num_reused) == (640, journaled)
    assert abs(server.num_requests - asked - (640 - journaled)) <= 8
