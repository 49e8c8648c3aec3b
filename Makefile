# Two commands set everything up: `make demo` runs the main job, `make test` runs the tests of a change.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# pip warns of folders with the names of the two packages, which do not exist.
PIP = PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-input
PYTEST_ARGS ?=

.PHONY: demo demo-real results check-demo test test-all test-touched test-clients mutations damage damage-training damage-generation damage-serving damage-overload check format fuzz audit sbom docs clean

$(VENV)/.ready: pyproject.toml client/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "raydebm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@echo "1/3 virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip
# torch first and alone, so that the next step keeps any build of 2.13.0 that is installed (CPU or CUDA).
	@echo "2/3 torch, up to some gigabytes"
	@$(PIP) torch==2.13.0
	@echo "3/3 raydebm, its client and their development tools"
	@$(PIP) --constraint constraints.txt --editable client --editable '.[dev]'
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/raydebm demo

# The main job on answers of three real LLMs, which are part of the package (docs/results/gsm8k_small_llms.md): half of the
# problems, for two cores. All 200: make demo-real LIMITS=
LIMITS ?= task.train.limit=60 task.test.limit=40
demo-real: $(VENV)/.ready
	@$(BIN)/raydebm run --config configs/gsm8k_small_llms.yaml --recorded embedded:gsm8k_small_llms \
	  $(LIMITS) run_dir=runs/demo-real

# The tables of the README and of docs/results/evidence.md, from recorded answers (RAYDEBM_DATA). The pools of FOLDS are
# trained and tested in five folds, which takes hours on two cores; those of LABELS are only labelled. Finished stages are
# reused, and the minutes of each pool are printed. One pool: make results FOLDS=mbpp_recorded LABELS= RECIPE="task.train.limit=60"
LABELS ?= mmlu_pro_recorded kor_bench_recorded reasoning_gym_recorded
FOLDS ?= $(filter-out $(LABELS),$(patsubst configs/%.yaml,%,$(wildcard configs/*_recorded.yaml)))
RUNS ?= runs/results
RECIPE ?=
results: $(VENV)/.ready
	@set -e; minutes() { start=$$(date +%s); "$$@"; echo "$$pool: $$(( ($$(date +%s) - start + 30) / 60 )) min"; }; \
	for pool in $(LABELS); do minutes $(BIN)/raydebm run --config configs/$$pool.yaml --until labels $(RECIPE) run_dir=$(RUNS)/$$pool; done; \
	for pool in $(FOLDS); do minutes $(BIN)/raydebm seeds --config configs/$$pool.yaml --folds 5 $(RECIPE) run_dir=$(RUNS)/$$pool; done
	@$(if $(FOLDS),$(BIN)/python benchmarks/results_table.py $(FOLDS:%=$(RUNS)/%))
	@$(BIN)/python benchmarks/evidence.py $(LABELS:%=$(RUNS)/%) $(FOLDS:%=$(RUNS)/%)

# The demo in an empty folder, with a check of its decisions. The folder is kept if the check fails.
check-demo: $(VENV)/.ready
	@folder=$$(mktemp -d) && cd $$folder && \
	$(abspath $(BIN))/raydebm demo --json demo.json && \
	$(abspath $(BIN))/python $(CURDIR)/.ci/check_demo.py demo.json && rm -r $$folder

# The first lane, the tests of every change: ten minutes on two idle cores, in two processes. The tests on Ray share one
# cluster in one of them (tests/conftest.py).
test: $(VENV)/.ready
	$(BIN)/pytest -n 2 --dist loadscope --lane first $(PYTEST_ARGS)

# Both lanes: also the tests that kill processes, open a browser, build wheels, fuzz, start clusters and train studies.
test-all: $(VENV)/.ready
	$(BIN)/pytest -n 2 --dist loadscope $(PYTEST_ARGS)

# One test file of each kind of the second lane, then the folders that changed since a commit, until STOP_AFTER seconds
# have passed: make test-touched SINCE=main~1 STOP_AFTER=600
SINCE ?= HEAD~1
STOP_AFTER ?= 480
test-touched: $(VENV)/.ready
	$(BIN)/pytest -n 2 --dist loadscope --touched $(SINCE) --stop-after $(STOP_AFTER) $(PYTEST_ARGS)

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Third-party clients, each in its own environment from the package index: make test-clients CLIENTS="openai cohere"
test-clients: $(VENV)/.ready
	@$(BIN)/python tests/clients/run.py $(CLIENTS) --write docs/clients.md

# The mutations of the code that docs/paper.md names, each against the tests of its row: make mutations IDS="clip adamw"
mutations: $(VENV)/.ready
	@$(BIN)/python tests/mutations/run.py $(IDS)

# Training, generation and the service while processes are killed, and a service under overload. It takes hours with 30
# seeds: make damage SEEDS=3 FIRST_SEED=0 REQUESTS=2000 OVERLOAD_S=60. All four targets run, even if one fails.
SEEDS ?= 30
FIRST_SEED ?= 0
REQUESTS ?= 50000
OVERLOAD_S ?= 600
damage: $(VENV)/.ready
	@$(MAKE) --silent --jobs=1 --keep-going damage-training damage-generation damage-serving damage-overload
damage-training: $(VENV)/.ready
	@$(BIN)/python tests/damage/damaged_training.py --seeds $(SEEDS) --first-seed $(FIRST_SEED)
damage-generation: $(VENV)/.ready
	@$(BIN)/python tests/damage/damaged_generation.py --seeds $(SEEDS) --first-seed $(FIRST_SEED) --requests $(REQUESTS)
damage-serving: $(VENV)/.ready
	@$(BIN)/python tests/damage/damaged_serving.py --seeds $(SEEDS) --first-seed $(FIRST_SEED)
damage-overload: $(VENV)/.ready
	@$(BIN)/python tests/damage/overloaded_serving.py --seconds $(OVERLOAD_S)

# Coverage-guided fuzzing of every parser: make fuzz FUZZ_ARGS="--executions 1000000 --target 'plain JSON'"
fuzz: $(VENV)/.ready
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(PIP) atheris==3.1.0
	@$(BIN)/python tests/fuzz/run.py $(FUZZ_ARGS)

# The audit has its own environment, so that its tools are not among the audited packages.
.audit/.ready:
	@$(PYTHON) -m venv .audit
	@.audit/bin/pip install --quiet --disable-pip-version-check --no-input --retries 1 pip-audit==2.10.1 cyclonedx-bom==7.5.0
	@touch $@

# Without a network, it prints a note and passes.
audit:
	@$(MAKE) --silent .audit/.ready || true
	@$(PYTHON) .ci/audit.py .audit/bin/pip-audit constraints.txt

sbom: .audit/.ready $(VENV)/.ready
	@.audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file sbom.json $(VENV)
	@echo "sbom.json (CycloneDX) lists what is installed in $(VENV)"

# The documentation site, in site/. Its tools have their own environment.
.docs/.ready:
	@$(PYTHON) -m venv .docs
	@.docs/bin/pip install --quiet --disable-pip-version-check --no-input mkdocs-material==9.8.2 'mkdocstrings[python]==1.0.8'
	@touch $@
docs: .docs/.ready
	@NO_MKDOCS_2_WARNING=1 .docs/bin/mkdocs build --quiet
	@echo "site/index.html; .docs/bin/mkdocs serve shows it while you write"

clean:
	rm -rf build dist site sbom.json .audit .docs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
