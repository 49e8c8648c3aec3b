"""serve_config.yaml against Ray's schemas, the application and its arguments. Ray itself ignores unknown keys."""

import pytest
import yaml
from ray.serve.config import AutoscalingConfig, BackpressureConfig
from ray.serve.schema import (
    DeploymentSchema,
    HTTPOptionsSchema,
    LoggingConfig,
    RayActorOptionsSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
)

from raydebm.service.ray.deployments import ConstraintDeployment, GeneratorDeployment, ScorerDeployment
from raydebm.service.ray.ingress import CHANGEABLE, REVISION, TriageIngress
from raydebm.service.settings import ANSWER_S, REQUEST_TIMEOUT_S, AppArgs

USER_CONFIG = {
    "TriageIngress": {*CHANGEABLE, REVISION},
    "ScorerDeployment": {"max_batch_texts", "batch_s"},
}
"""What each deployment's ``reconfigure`` reads."""
PARTS = {kind.__name__ for kind in (TriageIngress, GeneratorDeployment, ScorerDeployment, ConstraintDeployment)}


@pytest.fixture
def config(repository):
    return yaml.safe_load((repository / "serve_config.yaml").read_text())


def unknown_keys(config):
    """Dotted paths of keys that Ray's models or the application do not have."""
    paths = []

    def compare(tree, known, where):
        paths.extend(f"{where}{key}" for key in tree if key not in known)

    def of_model(tree, model, where):
        compare(tree, model.model_fields, where)

    of_model(config, ServeDeploySchema, "")
    of_model(config.get("http_options", {}), HTTPOptionsSchema, "http_options.")
    of_model(config.get("logging_config", {}), LoggingConfig, "logging_config.")
    for application in config["applications"]:
        of_model(application, ServeApplicationSchema, "applications.")
        of_model(application.get("args", {}), AppArgs, "args.")
        for deployment in application["deployments"]:
            where = f"{deployment.get('name')}."
            of_model(deployment, DeploymentSchema, where)
            of_model(deployment.get("ray_actor_options", {}), RayActorOptionsSchema, f"{where}ray_actor_options.")
            of_model(deployment.get("autoscaling_config", {}), AutoscalingConfig, f"{where}autoscaling_config.")
            of_model(deployment.get("backpressure_config", {}), BackpressureConfig, f"{where}backpressure_config.")
            compare(deployment.get("user_config", {}), USER_CONFIG.get(deployment["name"], ()), f"{where}user_config.")
    return paths


def test_health_checks_get_through_a_full_service(config):
    """Serve counts them among the ingress' ongoing requests."""
    application = config["applications"][0]
    limits = AppArgs(**application["args"]).limits
    most = {deployment["name"]: deployment["max_ongoing_requests"] for deployment in application["deployments"]}
    assert limits.max_running * 5 // 4 < most["TriageIngress"]
    assert limits.max_running < most["GeneratorDeployment"]  # which is asked for its health too


def test_the_longest_deadline_is_over_before_serve_cuts_a_request_off(config):
    within = AppArgs(**config["applications"][0]["args"]).max_deadline_s
    assert within + ANSWER_S <= config["http_options"]["request_timeout_s"] == REQUEST_TIMEOUT_S


def test_every_key_is_known(config):
    assert unknown_keys(config) == []


def test_every_deployment_of_the_application_is_configured_under_its_name(config):
    assert {deployment["name"] for deployment in config["applications"][0]["deployments"]} == PARTS


def test_it_listens_on_this_machine_only(config):
    assert config["http_options"]["host"] == "127.0.0.1"


def test_every_request_that_runs_may_wait_in_the_scorer(config):
    """Its turns are fair among the calls that it holds; what waits in Serve's queue before it has none."""
    (application,) = config["applications"]
    limits = AppArgs(**application["args"]).limits
    scorer = next(deployment for deployment in application["deployments"] if deployment["name"] == "ScorerDeployment")
    assert limits.max_running < scorer["max_ongoing_requests"]


def test_every_queue_has_a_limit_and_every_replica_a_health_check(config):
    for deployment in config["applications"][0]["deployments"]:
        assert deployment["max_queued_requests"] > 0
        assert deployment["health_check_period_s"] > 0
