# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

.PHONY: demo test check format clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "raydebm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
# torch first and alone: any 2.13.0 build that is already at hand (CPU or CUDA) is kept by what follows.
	$(BIN)/pip install --progress-bar off torch==2.13.0
	$(BIN)/pip install --progress-bar off --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/.ready
	$(BIN)/raydebm demo

test: $(VENV)/.ready
# Two processes: all files that need Ray go to one of them (tests/conftest.py).
	$(BIN)/pytest -n 2 --dist loadscope $(PYTEST_ARGS)

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
