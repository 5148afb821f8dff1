# Everything that a fresh clone needs: Python 3.11, git and make.
#
# torch: on Linux the Python package index carries the CUDA build (some GB). On a machine without a GPU, name
# PyTorch's CPU index in PIP_EXTRA_INDEX_URL (or a folder of wheels in PIP_FIND_LINKS) before `make install`; pip
# then takes 2.13.0+cpu, which the pin allows and prefers.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LIGHT := $(VENV)/.installed-light

# Installs what many packages make up, in a fraction of pip's time. It reads settings of its own: an index or a folder of
# wheels besides the package index is named in UV_INDEX or UV_FIND_LINKS.
UV_VENV := .uv-venv
UV := $(UV_VENV)/bin/uv

# The real Trinity-RFT, without Ray's cluster and without GPUs, for the contract tests: an environment of its own,
# because it and TRL want different versions of the same packages.
TRINITY_VENV := .trinity-venv
TRINITY_INSTALLED := $(TRINITY_VENV)/.installed

# The same with everything: Ray, vLLM's CPU build, verl.
FULL_VENV := .trinity-full-venv
FULL_INSTALLED := $(FULL_VENV)/.installed

# What builds and checks distributions.
DIST_VENV := .dist-venv
DIST_INSTALLED := $(DIST_VENV)/.installed
DIST ?= dist

# Sphinx, which makes the site of docs/, beside our own two distributions.
DOCS_VENV := .docs-venv
DOCS_INSTALLED := $(DOCS_VENV)/.installed
SITE ?= build/docs

# What makes the lock files and the bills of materials.
LOCKS_VENV := .locks-venv
LOCKS_INSTALLED := $(LOCKS_VENV)/.installed
SBOMS := sidecar postgres otel data embedded trinity

# vLLM's CPU build, as the production model that the proxy stands before.
VLLM_VENV := .vllm-venv
VLLM_INSTALLED := $(VLLM_VENV)/.installed

# Our own distribution with Ray.
RAY_VENV := .ray-venv
RAY_INSTALLED := $(RAY_VENV)/.installed

# Our own distribution with the embedded engine, W&B and MLflow.
MONITORS_VENV := .monitors-venv
MONITORS_INSTALLED := $(MONITORS_VENV)/.installed

# atheris, which fuzzes by coverage, beside our own distribution.
FUZZ_VENV := .fuzz-venv
FUZZ_INSTALLED := $(FUZZ_VENV)/.installed

# What the proxy is measured against, each in an environment of its own.
BENCH_VENV := .bench-venv
PEERS := litellm agent-lightning mlflow

# Other people's packages that call a model, each in an environment of its own. uv links what several of them have in
# common, so that two dozen environments take 3 GB.
CLIENTS_VENV := .clients-venv
PYTHON_CLIENTS := $(patsubst tests/clients/%/requirements.txt,%,$(wildcard tests/clients/*/requirements.txt))
NODE_CLIENTS := $(patsubst tests/clients/%/package.json,%,$(wildcard tests/clients/*/package.json))
CLIENTS_INSTALLED := $(patsubst %,$(CLIENTS_VENV)/%/.installed,$(PYTHON_CLIENTS) $(NODE_CLIENTS))

.PHONY: help install install-light install-trinity check lint audit test test-slow test-all dist test-dist test-trinity test-trinity-slow test-trinity-protections test-trinity-full test-vllm test-ray test-monitors test-fuzz clients test-clients client-matrix docs demo demo-page demo-rollout bench bench-pipeline chaos soak-cluster soak hurt locks sbom digests constraints clean

help:  ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 34

install: $(INSTALLED)  ## set up .venv: the package with its extras, at the versions of constraints.txt

# torch by pip, which has been told where to find it; uv then takes the one that is there.
$(INSTALLED): pyproject.toml client/pyproject.toml constraints.txt | $(UV)
	@echo "Setting up $(VENV): some minutes the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable ".[data,embedded,postgres,otel,demo,examples,experiments,dev]" --editable "./client[anthropic,openai,tuner]"
	@touch $@ $(LIGHT)

install-light: $(LIGHT)  ## .venv without torch and what needs it: enough for `make check`

$(LIGHT): pyproject.toml client/pyproject.toml constraints.txt
	@echo "Setting up $(VENV), without torch: a minute the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[data,postgres,otel,dev]" --editable "./client[anthropic,openai]"
	@touch $@

# T: one path or several, tests of any tier. By default those that run in one process and need no server of their own.
T ?= $(IN_PROCESS)
IN_PROCESS := tests/capture tests/config tests/rewards tests/selection tests/test_docs.py tests/test_docs_examples.py tests/test_docs_site.py tests/test_language.py tests/test_redaction.py tests/test_redaction_secrets.py tests/test_jsontext.py tests/test_logs.py tests/stages

# Without torch, mypy leaves out what imports it, and does not know the types of what it does not find.
WITHOUT_TORCH := --ignore-missing-imports --follow-imports=silent --no-warn-unused-ignores --exclude 'embedded/|local/model|local/tuning|/tuner/' service client

check: | $(LIGHT)  ## while you work: ruff, the direction of imports, types, and tests in process; `make check T=tests/rewards`
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m mypy $(if $(wildcard $(INSTALLED)),,$(WITHOUT_TORCH))
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" $(T)

lint: $(INSTALLED) audit  ## ruff (rules, those of bandit among them, and format), the direction of imports, mypy --strict, the audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

audit: $(INSTALLED)  ## known vulnerabilities of the pinned versions, as OSV lists them; without a network it says so
	$(BIN)/python deploy/audit.py constraints.txt

# The tests start hundreds of processes, and each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# One test process more than a small machine has cores: some tests wait. Each test file runs in one process, in
# order, and `tests/support/tiers.py` says which goes first.
WORKERS ?= 3

# What is marked `slow` is for a release; everything else runs on each change.
test: $(INSTALLED)  ## the tests, without those marked slow
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore=tests/trinity --ignore=tests/distributions -m "not slow"

# Most of these keep a core busy, or start several processes that do: a test process for each core is enough.
SLOW_WORKERS ?= 2

test-slow: $(INSTALLED) audit  ## the audit of the pins, and the tests marked slow
	$(BIN)/python -m pytest --numprocesses $(SLOW_WORKERS) --dist loadfile --no-loadscope-reorder --ignore=tests/trinity --ignore=tests/distributions --ignore=tests/vllm_cpu --ignore=tests/clients -m slow

test-all: lint test test-slow test-dist test-clients test-trinity test-trinity-slow test-trinity-protections test-trinity-full test-vllm test-ray test-monitors test-fuzz  ## everything, before a release: hours

dist: $(DIST_INSTALLED)  ## build both distributions into dist/, checked as the package index checks them
	$(DIST_VENV)/bin/python -m build --outdir $(DIST) .
	$(DIST_VENV)/bin/python -m build --outdir $(DIST) client
	$(DIST_VENV)/bin/python -m twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz

test-dist: $(INSTALLED) $(DIST_INSTALLED)  ## build both distributions, and install them as their users would: 2 minutes
	$(BIN)/python -m pytest tests/distributions

$(DIST_INSTALLED): tests/distributions/requirements.txt
	test -x $(DIST_VENV)/bin/python || $(PYTHON) -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/python -m pip install --quiet --requirement $<
	@touch $@

clients: $(CLIENTS_INSTALLED)  ## the environments of tests/clients: 24 packages that call a model; needs npm

test-clients: $(INSTALLED) clients  ## agents of other people's packages behind the sidecar: 10 minutes
	$(BIN)/python -m pytest --numprocesses $(WORKERS) tests/clients

client-matrix: $(INSTALLED) clients  ## the same, into the table of docs/capture.md
	PYTHONPATH=tests/clients:tests/support:benchmarks $(BIN)/python -m matrix $(or $(ARGS),--write docs/capture.md)

$(UV): tests/clients/uv.txt
	test -x $(UV_VENV)/bin/python || $(PYTHON) -m venv $(UV_VENV)
	$(UV_VENV)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(PYTHON_CLIENTS:%=$(CLIENTS_VENV)/%/.installed): $(CLIENTS_VENV)/%/.installed: tests/clients/%/requirements.txt | $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) $(@D)
	$(UV) pip install --quiet --compile-bytecode --python $(@D)/bin/python --requirement $<
	@touch $@

$(CLIENTS_VENV)/node/.installed: tests/clients/package.json
	mkdir -p $(@D) && cp $< $(@D)
	cd $(@D) && npm install --silent --no-package-lock
	@touch $@

$(NODE_CLIENTS:%=$(CLIENTS_VENV)/%/.installed): $(CLIENTS_VENV)/%/.installed: tests/clients/%/package.json $(CLIENTS_VENV)/node/.installed
	mkdir -p $(@D) && cp $< $(@D)
	cd $(@D) && npm install --silent --no-package-lock
	@touch $@

test-trinity: $(INSTALLED) $(TRINITY_INSTALLED)  ## the contract tests against Trinity-RFT's real code, without those marked slow
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" tests/trinity

test-trinity-slow: $(INSTALLED) $(TRINITY_INSTALLED)  ## the contract tests marked slow
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m slow tests/trinity

test-trinity-protections: $(INSTALLED) $(TRINITY_INSTALLED)  ## take each protection out: its contract test must fail
	$(BIN)/python tests/trinity/protections.py

install-trinity: $(TRINITY_INSTALLED)  ## set up .trinity-venv: Trinity-RFT's real code for the contract tests

$(TRINITY_INSTALLED): tests/trinity/requirements.txt | $(UV)
	@echo "Setting up $(TRINITY_VENV): some minutes the first time, 1.8 GB"
	test -x $(TRINITY_VENV)/bin/python || $(PYTHON) -m venv $(TRINITY_VENV)
	$(TRINITY_VENV)/bin/python -m pip install --quiet $$(grep '^torch=' $<)
	grep -vE '^(trinity-rft|verl)=' $< | $(UV) pip install --quiet --compile-bytecode --python $(TRINITY_VENV)/bin/python --requirement -
	$(UV) pip install --quiet --compile-bytecode --python $(TRINITY_VENV)/bin/python --no-deps $$(grep -E '^(trinity-rft|verl)=' $<)
	@touch $@

test-trinity-full: $(INSTALLED) $(FULL_INSTALLED)  ## the whole of Trinity-RFT on CPU learns the demo's job: minutes, 10 GB
	$(BIN)/python tests/trinity_full/run.py
	$(BIN)/python tests/trinity_full/train_datasets.py

$(FULL_INSTALLED): tests/trinity_full/requirements.txt
	@echo "Setting up $(FULL_VENV): some minutes the first time, 4.2 GB"
	test -x $(FULL_VENV)/bin/python || $(PYTHON) -m venv $(FULL_VENV)
	$(FULL_VENV)/bin/python -m pip install --quiet --no-deps --requirement $<
	@touch $@

test-vllm: $(INSTALLED) $(VLLM_INSTALLED)  ## streams of the real vLLM, on CPU, are captured: minutes, 4 GB
	$(BIN)/python -m pytest tests/vllm_cpu

$(VLLM_INSTALLED): tests/vllm_cpu/requirements.txt
	@echo "Setting up $(VLLM_VENV): some minutes the first time, 3 GB"
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --requirement $<
	@touch $@

# SECONDS: of each reader. A finding is written to a file `crash-*`, and its bytes are printed.
SECONDS ?= 30

# Not in .venv: its `ray` would stand before the one of an environment of Trinity's.
test-ray: $(INSTALLED) $(RAY_INSTALLED)  ## a data set by Ray Data on two workers is that of one process: a minute
	$(BIN)/python -m pytest tests/datasets/test_by_ray.py

$(RAY_INSTALLED): constraints.txt pyproject.toml
	test -x $(RAY_VENV)/bin/python || $(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[data,ray]"
	@touch $@

# Without the constraints: MLflow wants older versions of some packages than .venv has.
test-monitors: $(INSTALLED) $(MONITORS_INSTALLED)  ## metrics reach the real W&B (offline) and the real MLflow: 10 minutes
	$(BIN)/python -m pytest tests/monitors

$(MONITORS_INSTALLED): pyproject.toml | $(UV)
	@echo "Setting up $(MONITORS_VENV): some minutes the first time, 2 GB"
	test -x $(MONITORS_VENV)/bin/python || $(PYTHON) -m venv $(MONITORS_VENV)
	$(MONITORS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(UV) pip install --quiet --compile-bytecode --python $(MONITORS_VENV)/bin/python --editable ".[embedded,wandb,mlflow]"
	@touch $@

test-fuzz: $(FUZZ_INSTALLED)  ## the two readers of HTTP under bytes that atheris finds by coverage: a minute
	PYTHONPATH=service $(FUZZ_VENV)/bin/python tests/fuzz/guided.py requests -max_total_time=$(SECONDS)
	PYTHONPATH=service $(FUZZ_VENV)/bin/python tests/fuzz/guided.py answers -max_total_time=$(SECONDS)

$(FUZZ_INSTALLED): constraints.txt pyproject.toml
	test -x $(FUZZ_VENV)/bin/python || $(PYTHON) -m venv $(FUZZ_VENV)
	$(FUZZ_VENV)/bin/python -m pip install --quiet --constraint constraints.txt . atheris==3.0.0
	@touch $@

# PYTHONPATH: the reference is made from the code as it is here, not as it was when the environment was set up.
docs: $(DOCS_INSTALLED)  ## the site of docs/, into build/docs/; a warning is an error
	PYTHONPATH=service:client $(DOCS_VENV)/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env -c docs/site docs $(SITE)
	@echo "Open $(SITE)/index.html"

$(DOCS_INSTALLED): docs/site/requirements.txt constraints.txt pyproject.toml client/pyproject.toml
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --requirement $< . ./client
	@touch $@

demo: $(INSTALLED)  ## the main job from end to end: reward per version, policy against production
	$(BIN)/python examples/demo/run.py

demo-page: $(INSTALLED)  ## what the last `make demo` left behind, in the browser
	$(BIN)/python examples/demo/look.py $(ARGS)

# ARGS='--seed 2' takes other tasks, other sampling and other noise.
demo-rollout: $(INSTALLED)  ## a version is proven on live users and promoted, a bad one rolled back: minutes
	$(BIN)/python examples/demo/run_rollout.py $(ARGS)

# A peer that cannot be installed is no error: the report names it. With `--only` what is there already is measured.
bench: $(INSTALLED)  ## the proxy beside nginx and its peers, into docs/benchmarks.md: 15 minutes
	$(if $(findstring --only,$(ARGS)),,-$(MAKE) --keep-going $(PEERS:%=$(BENCH_VENV)/%/.installed) $(BENCH_VENV)/trinity/.installed)
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
	PYTHONPATH=tests/chaos:tests/support:tests/trinity:benchmarks $(BIN)/python -m chaos.alternating_kills \
		$(or $(ARGS),--write docs/reliability.md)

soak: $(INSTALLED)  ## half an hour of load with faults, into docs/reliability.md: does anything grow?
	PYTHONPATH=benchmarks $(BIN)/python -m soak $(or $(ARGS),--write docs/reliability.md)

locks: $(LOCKS_INSTALLED)  ## lock files with hashes, of the versions in constraints.txt (after `make constraints`)
	$(LOCKS_VENV)/bin/python deploy/locks.py --uv $(LOCKS_VENV)/bin/uv

sbom: $(LOCKS_INSTALLED)  ## bills of materials of the locks, as CycloneDX, into dist/sbom/
	mkdir -p $(DIST)/sbom
	for lock in $(SBOMS); do $(LOCKS_VENV)/bin/cyclonedx-py requirements --pyproject pyproject.toml --spec-version 1.6 \
		--output-reproducible --output-format JSON --output-file $(DIST)/sbom/$$lock.cdx.json locks/$$lock.txt || exit 1; done

digests: $(INSTALLED)  ## what the registries have under the names of the base images; needs a network
	$(BIN)/python deploy/digests.py

$(LOCKS_INSTALLED): locks/tools.txt
	test -x $(LOCKS_VENV)/bin/python || $(PYTHON) -m venv $(LOCKS_VENV)
	$(LOCKS_VENV)/bin/python -m pip install --quiet --require-hashes --requirement $<
	@touch $@

hurt: $(INSTALLED)  ## what agents notice while the training side is hurt on purpose, into docs/reliability.md: 12 minutes
	PYTHONPATH=benchmarks $(BIN)/python -m hurt_training $(or $(ARGS),--write docs/reliability.md)

# What only .ray-venv has keeps its pin; of a package of both .venv's version counts, which is named first.
constraints: $(INSTALLED) $(RAY_INSTALLED)  ## pin what .venv and .ray-venv have now (after a deliberate upgrade)
	for venv in $(VENV) $(RAY_VENV); do $$venv/bin/python -m pip freeze --exclude-editable; done \
		| sed -E '/^#/d; s/\+[^ ]*$$//' | awk -F== '!seen[tolower($$1)]++' | LC_ALL=C sort --ignore-case > constraints.txt
	@touch $(INSTALLED)

clean:  ## remove what the other targets made, .venv included
	rm -rf $(VENV) $(TRINITY_VENV) $(FULL_VENV) $(VLLM_VENV) $(DIST_VENV) $(BENCH_VENV) $(CLIENTS_VENV) $(UV_VENV) $(RAY_VENV) $(MONITORS_VENV) $(FUZZ_VENV) $(LOCKS_VENV) $(DOCS_VENV) $(SITE) .pytest_cache .mypy_cache .ruff_cache demo-output chaos-output trinity-full-output experiments-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
