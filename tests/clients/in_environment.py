"""Runs the scenes of one client in its own environment; prints one line of JSON. Knows nothing of the package."""

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path


def outcome(use):
    """[whether it worked, in words]"""
    try:
        return [True, use()]
    except Exception as error:
        return [False, f"{type(error).__name__}: {error}"[:300]]


def main(name, packages):
    """Every function of the scenes that is named like a use is one."""
    sys.path.insert(0, str(Path(__file__).parent / "scenes"))
    scenes = importlib.import_module(f"{name}_scenes")
    uses = {use: outcome(getattr(scenes, use)) for use in scenes.USES}
    print(json.dumps({"versions": {package: version(package) for package in packages}, "uses": uses}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
