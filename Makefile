# Everything that a fresh clone needs: Python 3.11, git and make.
#
# torch: on Linux the Python package index carries the CUDA build (some GB). On a machine without a GPU, name
# PyTorch's CPU index in PIP_EXTRA_INDEX_URL (or a folder of wheels in PIP_FIND_LINKS) before `make install`; pip
# then takes 2.13.0+cpu, which the pin allows and prefers.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The real Trinity-RFT, without Ray's cluster and without GPUs, for the contract tests: an environment of its own,
# because it and TRL want different versions of the same packages.
TRINITY_VENV := .trinity-venv
TRINITY_INSTALLED := $(TRINITY_VENV)/.installed

# The same with everything: Ray, vLLM's CPU build, verl.
FULL_VENV := .trinity-full-venv
FULL_INSTALLED := $(FULL_VENV)/.installed

# What the proxy is measured against, each in an environment of its own.
BENCH_VENV := .bench-venv
PEERS := litellm agent-lightning mlflow

.PHONY: help install lint audit test test-trinity test-trinity-protections test-trinity-full demo bench bench-pipeline chaos soak-cluster soak constraints clean

help:  ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 34

install: $(INSTALLED)  ## set up .venv: the package with its extras, at the versions of constraints.txt

$(INSTALLED): pyproject.toml client/pyproject.toml constraints.txt
	@echo "Setting up $(VENV): some minutes the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[embedded,postgres,demo,examples,experiments,dev]" --editable "./client[openai,tuner]"
	@touch $@

lint: $(INSTALLED) audit  ## ruff (rules, those of bandit among them, and format), mypy --strict, the audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

audit: $(INSTALLED)  ## known vulnerabilities of the pinned versions, as OSV lists them; without a network it says so
	$(BIN)/python deploy/audit.py constraints.txt

# As many test processes as a small machine has cores; each test file runs in one of them, in order.
WORKERS ?= 2

test: $(INSTALLED)  ## the tests
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --ignore=tests/trinity

test-trinity: $(INSTALLED) $(TRINITY_INSTALLED)  ## the contract tests against Trinity-RFT's real code
	$(BIN)/python -m pytest tests/trinity

test-trinity-protections: $(INSTALLED) $(TRINITY_INSTALLED)  ## take each protection out: its contract test must fail
	$(BIN)/python tests/trinity/protections.py

$(TRINITY_INSTALLED): tests/trinity/requirements.txt
	@echo "Setting up $(TRINITY_VENV): some minutes the first time, 1.8 GB"
	test -x $(TRINITY_VENV)/bin/python || $(PYTHON) -m venv $(TRINITY_VENV)
	grep -vE '^(trinity-rft|verl)=' $< | $(TRINITY_VENV)/bin/python -m pip install --quiet --requirement /dev/stdin
	$(TRINITY_VENV)/bin/python -m pip install --quiet --no-deps $$(grep -E '^(trinity-rft|verl)=' $<)
	@touch $@

test-trinity-full: $(INSTALLED) $(FULL_INSTALLED)  ## the whole of Trinity-RFT on CPU learns the demo's job: minutes, 10 GB
	$(BIN)/python tests/trinity_full/run.py

$(FULL_INSTALLED): tests/trinity_full/requirements.txt
	@echo "Setting up $(FULL_VENV): some minutes the first time, 4.2 GB"
	test -x $(FULL_VENV)/bin/python || $(PYTHON) -m venv $(FULL_VENV)
	$(FULL_VENV)/bin/python -m pip install --quiet --no-deps --requirement $<
	@touch $@

demo: $(INSTALLED)  ## the main job from end to end: reward per version, policy against production
	$(BIN)/python examples/demo/run.py

# A peer that cannot be installed is no error: the report names it.
bench: $(INSTALLED)  ## the proxy beside nginx and its peers, into docs/benchmarks.md: 15 minutes
	-$(MAKE) --keep-going $(PEERS:%=$(BENCH_VENV)/%/.installed) $(BENCH_VENV)/trinity/.installed
	PYTHONPATH=benchmarks $(BIN)/python -m bench $(or $(ARGS),--write docs/benchmarks.md)

$(PEERS:%=$(BENCH_VENV)/%/.installed): $(BENCH_VENV)/%/.installed: benchmarks/peers/%.txt
	@echo "Setting up $(@D): some minutes the first time, below 1 GB"
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(BENCH_VENV)/trinity/.installed: benchmarks/peers/trinity.txt $(TRINITY_INSTALLED)
	$(TRINITY_VENV)/bin/python -m pip install --quiet --upgrade --target $(@D) --requirement $<
	@touch $@

bench-pipeline: $(INSTALLED)  ## from selection to committed feedback, on SQLite and on PostgreSQL: 5 minutes
	$(BIN)/python benchmarks/pipeline.py

# Which schedules, and how many at once; `make chaos SEEDS=7 ARGS='--keep chaos-output'` runs one again.
SEEDS ?= 0-199
JOBS ?= 4

chaos: $(INSTALLED)  ## break everything on purpose, on 200 seeded schedules, into docs/reliability.md: 20 minutes
	PYTHONPATH=tests/chaos:tests/support:tests/trinity:benchmarks $(BIN)/python -m chaos --seeds $(SEEDS) --jobs $(JOBS) \
		$(or $(ARGS),--write docs/reliability.md)

soak-cluster: $(INSTALLED)  ## two sidecars on one PostgreSQL, one killed every few seconds, into docs/reliability.md: 7 minutes
	PYTHONPATH=tests/chaos:tests/support:tests/trinity:benchmarks $(BIN)/python -m chaos.in_turns \
		$(or $(ARGS),--write docs/reliability.md)

soak: $(INSTALLED)  ## half an hour of load with faults, into docs/reliability.md: does anything grow?
	PYTHONPATH=benchmarks $(BIN)/python -m soak $(or $(ARGS),--write docs/reliability.md)

constraints: $(INSTALLED)  ## pin what .venv has now (after a deliberate upgrade)
	$(BIN)/python -m pip freeze --exclude-editable | sed -E '/^#/d; s/\+[^ ]*$$//' > constraints.txt
	@touch $(INSTALLED)

clean:  ## remove what the other targets made, .venv included
	rm -rf $(VENV) $(TRINITY_VENV) $(FULL_VENV) $(BENCH_VENV) .pytest_cache .mypy_cache .ruff_cache demo-output chaos-output trinity-full-output experiments-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
