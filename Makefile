# Every target sets up what it needs: Python >= 3.11 (with venv) and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready-$(shell cksum < requirements.lock | cut -d' ' -f1)
FOR    ?= 20s
SOAK   ?= 60s
JOBS   ?= 4
MODULE ?=
# The suite makes the same choices each time, so that a change is judged by what it does; test-all draws new ones.
SEED   ?= 350615919
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
SUITE  = $(PYTEST) --seed $(SEED) -m "not exhaustive and not soak and not deploy"
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all cover mutants test-deploy check format soak bench manifests lock clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## a virtual environment with everything locked

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tarry needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY) ## broker, service, producer and reader in one terminal, for $(FOR)
	$(BIN)/tarry demo --for $(FOR)

test: $(READY) ## the test suite, on a real broker, in $(JOBS) processes
	$(SUITE)

test-all: $(READY) ## every test there is but soak and deploy: more cases, and those that take minutes
	$(PYTEST) -m "not soak and not deploy"

cover: $(READY) ## the test suite, and how much of the code it goes through
	$(SUITE) --cov --cov-report=
	@echo "covered: $$($(BIN)/coverage report --format=total) %; $(BIN)/coverage report says where"

mutants: $(READY) ## bugs put into the modules that the promises rest on, or into $(MODULE): those that no test sees
	$(BIN)/python -m tests.mutants $(MODULE)

test-deploy: $(READY) ## the image, compose and Kubernetes, each where its tool is there
	$(BIN)/python -m pytest tests/deploy -m deploy

check: $(READY) ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## put the code in form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: $(READY) ## random faults on a real broker and two services, for $(SOAK); says the seed
	$(BIN)/python -m pytest tests/e2e/test_soak.py -m soak --soak-for $(SOAK)

bench: $(READY) ## figures, as ratios in one run
	$(BIN)/python -m benches.bench_wheel
	$(BIN)/python -m benches.bench_purgatory
	$(BIN)/python -m benches.bench_relay
	$(BIN)/python -m benches.bench_overflow
	$(BIN)/python -m benches.bench_poison
	$(BIN)/python -m benches.bench_pipeline_schedule
	$(BIN)/python -m benches.bench_pipeline_apply
	$(BIN)/python -m benches.bench_pipeline_audit

manifests: $(READY) ## deploy/k8s from the chart; needs helm
	$(BIN)/python deploy/render.py

lock: $(READY) ## resolve the dependencies anew
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) pyproject.toml --all-extras -o requirements.lock
	@# What the image takes of that, and what builds it.
	$(COMPILE) -c requirements.lock pyproject.toml --extra service -o service/requirements/service.lock
	$(COMPILE) -c requirements.lock pyproject.toml --extra spark --extra postgres -o service/requirements/spark.lock
	$(COMPILE) -c requirements.lock service/requirements/build.in -o service/requirements/build.lock

clean: ## remove what make made
	rm -rf $(VENV) .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
