"""The OpenAPI document: complete, its examples work, and nothing generated from it makes the running server fail."""

import contextlib
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

from raydebm.service.access import Keyring  # noqa: E402
from raydebm.service.core import TriageService  # noqa: E402
from raydebm.service.routes.application import create_app  # noqa: E402
from raydebm.service.settings import AppArgs, load_bundle  # noqa: E402

# Requests for each operation that fit the document, and as many that do not.
# With fewer, none of the requests with many settings may happen to be accepted.
NUM_EXAMPLES = int(os.environ.get("RAYDEBM_FUZZ_EXAMPLES", "60"))
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "triage": "/v1/triage",
    "score": "/v1/score",
    "rerank": "/v1/rerank",
    "rewards": "/get_reward",
}


@pytest.fixture
def address(write_run, recipe, backend, free_port, listening):
    """A task that reads any text as a problem, policies and limits; generators and energies are written by hand."""
    backend.write = lambda request: f"It is #### {request.seed % 3}"
    run_dir = write_run({**recipe, "task": {"name": "gsm8k"}})
    args = AppArgs(run_dir=run_dir, policies={"strict": {"theta_sigma": 0.1}})
    with listening(create_app(TriageService(load_bundle(args), backend)), free_port) as url:
        yield url


@pytest.mark.fuzz
def test_no_generated_request_makes_the_server_fail(address):
    """Requests that fit the document and requests that do not; the answers must be as the document says."""
    statuses = Counter()

    def fuzz(operation, mode):
        @settings(
            max_examples=NUM_EXAMPLES,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(mode))
        def run(case):
            response = case.call(timeout=60)
            statuses[operation.path, response.status_code < 400] += 1
            case.validate_response(
                response,
                checks=[
                    # A deadline of a few milliseconds may well be too short; that is what 504 says.
                    *([] if response.status_code == 504 else [schemathesis.checks.not_a_server_error]),
                    checks.status_code_conformance,
                    checks.content_type_conformance,
                    checks.response_schema_conformance,
                ],
            )

        run()

    for operation in schemathesis.openapi.from_url(f"{address}/openapi.json", timeout=240).get_all_operations():
        for mode in schemathesis.GenerationMode:
            with contextlib.suppress(Unsatisfiable):  # nothing can be wrong with a request without parameters
                fuzz(operation.ok(), mode)
    for path in PATHS.values():
        assert statuses[path, True], f"{path}: everything was refused"
        assert statuses[path, False], f"{path}: nothing was refused"


@pytest.fixture
def document(client):
    return client.get("/openapi.json").json()


def test_every_body_has_examples_and_every_operation_a_description(document):
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["description"], path
            if method == "post":
                assert operation["requestBody"]["content"]["application/json"]["examples"], path


def test_errors_are_described_in_openais_form_everywhere(document):
    for operations in document["paths"].values():
        for operation in operations.values():
            for status in ("400", "422", "429", "503"):
                content = operation["responses"][status]["content"]["application/json"]
                assert content["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_document_says_when_a_key_is_needed(bundle, document, app_of):
    keyed = app_of(bundle, keyring=Keyring([])).openapi()
    assert "security" not in document
    assert keyed["security"] == [{"key": []}]
    assert keyed["paths"]["/health"]["get"]["security"] == []
