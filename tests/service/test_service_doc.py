"""docs/service.md says what is so: its YAML is accepted, its tables are complete."""

import re

import pytest
import yaml

from raydebm.service.access import load_keyring
from raydebm.service.ray import ingress
from raydebm.service.settings import AppArgs, ChatOverrides


@pytest.fixture(scope="module")
def text(repository):
    return (repository / "docs" / "service.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def blocks(text):
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)]


def test_the_arguments_are_accepted(blocks):
    for args in (block["args"] for block in blocks if "args" in block):
        AppArgs(**{"run_dir": "r", **args})


def test_the_keys_file_is_accepted(blocks, tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text(yaml.safe_dump(next(block for block in blocks if "keys" in block)))
    assert len(load_keyring(str(path))) == 3


def test_every_route_is_listed(text, app):
    paths = set(app.openapi()["paths"])
    assert {path for path in paths if f"{path.replace('{model_id}', '{id}')}`" not in text} == set()


def test_every_override_is_listed(text):
    names = {field.alias or name for name, field in ChatOverrides.model_fields.items()} - {"task"}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_every_metric_is_listed(text, monkeypatch):
    names = []

    class Recorder:
        def __init__(self, name, *rest):
            names.append(f"ray_{name}_total" if type(self) is Counting else f"ray_{name}")

    class Counting(Recorder):
        pass

    monkeypatch.setattr(ingress, "Counter", Counting)
    monkeypatch.setattr(ingress, "Gauge", Recorder)
    monkeypatch.setattr(ingress, "Histogram", Recorder)
    ingress.RayMeter()
    assert len(names) == 12
    assert {name for name in names if f"`{name}`" not in text} == set()
