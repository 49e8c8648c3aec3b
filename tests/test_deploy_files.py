"""The files of deploy/: dashboard and alarms name metrics that exist, manifest and image hold together."""

import fnmatch
import importlib
import inspect
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml


@pytest.fixture(scope="module")
def deploy(repository):
    return repository / "deploy"


@pytest.fixture(scope="module")
def own_metrics():
    """Name -> kind, of every metric that the service makes."""
    from raydebm.service.ray.ingress import RayMeter

    groups = vars(RayMeter()).values()
    return {metric.info["name"]: type(metric).__name__ for group in groups for metric in group.values()}


@pytest.fixture(scope="module")
def exported(own_metrics):
    """The names that Prometheus sees: Ray's prefix, and the suffixes of counters and histograms."""
    suffixes = {"Counter": ["_total"], "Gauge": [""], "Histogram": ["_bucket", "_sum", "_count"]}
    return {f"ray_{name}{suffix}" for name, kind in own_metrics.items() for suffix in suffixes[kind]}


def names_in(expression):
    return set(re.findall(r"\bray_\w+", expression))


# ---- Grafana --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dashboard(deploy):
    return json.loads((deploy / "grafana.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="module")
def expressions(dashboard, panels):
    of_panels = [target["expr"] for panel in panels for target in panel["targets"]]
    return of_panels + [annotation["expr"] for annotation in dashboard["annotations"]["list"]]


def test_every_metric_of_the_dashboard_exists(expressions, exported):
    used = {name for expression in expressions for name in names_in(expression) if name.startswith("ray_raydebm")}
    assert used - exported == set()


def test_every_metric_of_the_service_is_on_the_dashboard(expressions, own_metrics):
    text = " ".join(expressions)
    assert [name for name in own_metrics if not re.search(rf"\bray_{name}(_total|_bucket|_sum|_count)?\b", text)] == []


def test_serves_own_metrics_are_those_of_the_installed_ray(expressions):
    folder = Path(inspect.getfile(importlib.import_module("ray.serve"))).parent
    source = "".join(file.read_text(encoding="utf-8") for file in (folder / "_private").glob("*.py"))
    used = {name for text in expressions for name in names_in(text) if name.startswith("ray_serve")}
    bare = {re.sub(r"_(total|bucket|sum|count)$", "", name.removeprefix("ray_")) for name in used}
    assert used
    assert [name for name in bare if f'"{name}"' not in source] == []


# ---- Prometheus -----------------------------------------------------------------------------------------------------


def test_alarms_name_metrics_that_exist(deploy, exported):
    groups = yaml.safe_load((deploy / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    used = {name for rule in rules for name in names_in(rule["expr"]) if name.startswith("ray_raydebm")}
    assert used - exported == set()
    assert all(rule["alert"] and rule["annotations"]["summary"] for rule in rules)


def test_the_scrape_configuration_reads_the_alarms_and_rays_own_list_of_nodes(deploy):
    configuration = yaml.safe_load((deploy / "prometheus.yaml").read_text(encoding="utf-8"))
    assert [(deploy / name).is_file() for name in configuration["rule_files"]] == [True]
    by_file = next(job for job in configuration["scrape_configs"] if "file_sd_configs" in job)
    assert by_file["file_sd_configs"][0]["files"] == ["/tmp/ray/prom_metrics_service_discovery.json"]


# ---- KubeRay --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manifest(deploy):
    documents = yaml.safe_load_all((deploy / "kuberay.yaml").read_text(encoding="utf-8"))
    return next(document for document in documents if document["kind"] == "RayService")


@pytest.fixture(scope="module")
def serve_config(manifest):
    return yaml.safe_load(manifest["spec"]["serveConfigV2"])


def groups_of(manifest):
    cluster = manifest["spec"]["rayClusterConfig"]
    return {"head": cluster["headGroupSpec"], **{group["groupName"]: group for group in cluster["workerGroupSpecs"]}}


def container_of(group):
    (container,) = group["template"]["spec"]["containers"]
    return container


def test_the_manifest_has_only_keys_of_a_ray_service(manifest):
    """The top levels; the whole was checked against the operator's own schema when it was written."""
    assert manifest["apiVersion"] == "ray.io/v1"
    assert set(manifest["spec"]) <= {
        "serveConfigV2",
        "rayClusterConfig",
        "serviceUnhealthySecondThreshold",
        "deploymentUnhealthySecondThreshold",
        "excludeHeadPodFromServeSvc",
        "upgradeStrategy",
        "serveService",
    }
    cluster = manifest["spec"]["rayClusterConfig"]
    known = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "authOptions", "headGroupSpec"}
    assert set(cluster) <= {*known, "workerGroupSpecs", "gcsFaultToleranceOptions"}
    of_group = {"groupName", "minReplicas", "maxReplicas", "replicas", "rayStartParams", "template"}
    assert all(set(group) <= of_group for group in groups_of(manifest).values())
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_its_ray_is_the_pinned_one(manifest, repository):
    pinned = re.search(r"^ray(?:\[.*\])?==(\S+)", (repository / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert manifest["spec"]["rayClusterConfig"]["rayVersion"] == pinned.group(1)


def test_serves_configuration_passes_rays_own_check(serve_config):
    from ray.serve.schema import DeploymentSchema, RayActorOptionsSchema, ServeDeploySchema

    ServeDeploySchema.model_validate(serve_config)
    assert set(serve_config) <= set(ServeDeploySchema.model_fields)
    for deployment in serve_config["applications"][0]["deployments"]:
        assert set(deployment) <= set(DeploymentSchema.model_fields)
        assert set(deployment["ray_actor_options"]) <= set(RayActorOptionsSchema.model_fields)


def test_its_arguments_pass_the_applications_own_check(serve_config):
    from raydebm.service.settings import AppArgs

    limits = AppArgs.model_validate(serve_config["applications"][0]["args"]).limits
    ingress = serve_config["applications"][0]["deployments"][0]
    assert limits.max_running * 5 // 4 < ingress["max_ongoing_requests"]


def test_it_deploys_what_the_applications_own_configuration_deploys(serve_config, repository):
    own = yaml.safe_load((repository / "serve_config.yaml").read_text(encoding="utf-8"))

    def names(tree):
        return [deployment["name"] for deployment in tree["applications"][0]["deployments"]]

    assert names(serve_config) == names(own)
    assert serve_config["applications"][0]["import_path"] == own["applications"][0]["import_path"]


def test_only_the_generators_pods_hold_the_providers_keys(manifest, serve_config):
    with_keys = {
        name for name, group in groups_of(manifest).items() if "raydebm-provider-keys" in json.dumps(group["template"])
    }
    assert with_keys == {"generators"}
    wanted = {
        deployment["name"]: deployment["ray_actor_options"]
        for deployment in serve_config["applications"][0]["deployments"]
    }
    offered = groups_of(manifest)["generators"]["rayStartParams"]["resources"]
    only_there = {name for name, options in wanted.items() if "provider_keys" in options.get("resources", {})}
    assert "provider_keys" in offered
    assert only_there == {"GeneratorDeployment"}
    # Every other replica asks for something that the generators' pods do not have.
    for name in set(wanted) - only_there:
        assert wanted[name].get("num_gpus") or set(wanted[name].get("resources", {})) - {"provider_keys"}


def test_the_scorer_runs_on_a_gpu_and_nothing_runs_on_the_head(manifest):
    groups = groups_of(manifest)
    gpus = {name: container_of(group)["resources"]["limits"].get("nvidia.com/gpu") for name, group in groups.items()}
    assert gpus == {"head": None, "service": None, "generators": None, "scorer": "1"}
    assert groups["head"]["rayStartParams"]["num-cpus"] == "0"


def test_pods_outlive_the_requests_that_run_in_them(manifest, serve_config):
    slowest = max(
        deployment["graceful_shutdown_timeout_s"] for deployment in serve_config["applications"][0]["deployments"]
    )
    for group in groups_of(manifest).values():
        assert group["template"]["spec"]["terminationGracePeriodSeconds"] > slowest


def test_no_pod_runs_as_root(manifest):
    for group in groups_of(manifest).values():
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
        assert container_of(group)["securityContext"]["allowPrivilegeEscalation"] is False


# ---- the image ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def instructions(deploy):
    """(stage, instruction, its words) of the Dockerfile, comments and line ends taken out."""
    text = (deploy / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    steps, stage = [], -1
    for line in filter(str.strip, text.splitlines()):
        name, _, rest = line.strip().partition(" ")
        stage += name == "FROM"
        steps.append((stage, name, rest.split()))
    return steps


def test_it_has_two_stages_and_the_last_one_is_not_root(instructions):
    assert max(stage for stage, _, _ in instructions) == 1
    users = [words for stage, name, words in instructions if name == "USER" and stage == 1]
    assert users == [["1000"]]
    after = [name for _, name, _ in instructions][[name for _, name, _ in instructions].index("USER") :]
    assert "RUN" not in after


def test_every_file_that_it_copies_exists_and_is_not_ignored(instructions, repository):
    ignored = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    exceptions = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    sources = [
        word
        for _, name, words in instructions
        if name == "COPY" and not any(word.startswith("--from") for word in words)
        for word in [word for word in words if not word.startswith("--")][:-1]
    ]
    assert {"pyproject.toml", "raydebm", "serve_config.yaml"} <= set(sources)
    assert [source for source in sources if not (repository / source).exists()] == []
    assert [source for source in sources if not any(fnmatch.fnmatch(source, name) for name in exceptions)] == []


def test_whatever_pyproject_reads_is_copied_before_the_package_is_installed(instructions, repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install = next(
        index for index, (_, name, words) in enumerate(instructions) if name == "RUN" and "--constraint" in words
    )
    copied = {word for _, name, words in instructions[:install] if name == "COPY" for word in words}
    assert {project["readme"], "LICENSE", "constraints.txt", "raydebm"} <= copied


def test_it_can_isolate_programs_and_says_when_it_is_ready(instructions):
    installed = next(words for stage, name, words in instructions if name == "RUN" and stage == 1)
    assert "bubblewrap" in installed
    check = next(words for _, name, words in instructions if name == "HEALTHCHECK")
    assert any("/health" in word for word in check)
