# Every target installs everything that it needs. You need only make and Python 3.11 or newer (with venv).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready-$(shell cksum < requirements.lock | cut -d' ' -f1)
FOR    ?= 20s
SOAK   ?= 60s
JOBS   ?= 6
MODULE ?=
SAMPLE ?=
KAFKA  ?=
ADVISORIES ?=
# A fixed seed: two runs of the suite make the same random choices, so that a new failure comes from a change.
# test-all draws a new seed.
SEED   ?= 350615919
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
SUITE  = $(PYTEST) --seed $(SEED) -m "not exhaustive and not soak and not deploy"
# Unit, model and simulation once more, on the compiled core; what is imported is checked. Left out is what imports the
# tree itself: planted bugs, the container's health check, and the test that compiles.
COMPILED   := build/compiled
COMPILED_BY = $(shell find service/tarry -name '*.py') hatch_build.py pyproject.toml requirements.lock
COMPILED_TESTS = $(COMPILED)/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder \
	-o pythonpath=. --compiled -m "not soak and not deploy" --ignore tests/simulation/test_compiled.py --ignore tests/simulation/test_planted_bugs.py \
	--ignore tests/model/test_names_planted_bugs.py \
	--ignore tests/unit/test_healthcheck.py tests/unit tests/model tests/simulation
LOCK    = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --custom-compile-command "make lock"

# The tests start hundreds of Pythons. Without bytecode, each would compile the service, and pytest all tests, anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo browser test test-all test-compiled cover mutants test-deploy check format soak bench wheel compiled manifests lock sbom audit brokers clean

help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create a virtual environment with the locked dependencies

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tarry needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@# Python compiles a module at its first import, and most modules of the dependencies are never imported.
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-compile -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY) ## run a broker, the service, a producer, a reader and the console; FOR=20s is the default
	$(BIN)/tarry demo --for $(FOR)

browser: ## install Chromium for the tests of the console, if there is no browser; needs root and apt-get
	@for name in "$$CHROMIUM" chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do \
		if [ -n "$$name" ] && command -v "$$name" > /dev/null; then exit 0; fi; \
	done; \
	if [ "$$ALLOW_SKIP" = 1 ]; then echo "no browser: the tests of the console skip"; exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
		echo "no browser: install Chromium (or, as root: make browser), set CHROMIUM to the path of one, or ALLOW_SKIP=1"; exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && for package in chromium-headless-shell chromium; do \
		if apt-get install -qq -y --no-install-recommends $$package > /dev/null; then exit 0; fi; \
	done; exit 1

test: $(READY) browser ## run the test suite on a real broker, in 6 processes; another number: JOBS=2
	$(SUITE)

# Some of the further cases load both processors: beside five others they would miss deadlines and floors. Those that
# load them wholly are marked `alone`.
test-all: JOBS = 3
test-all: $(READY) browser ## run all tests except soak and deploy: also the further cases and the tests that take minutes
	$(PYTEST) -m "not soak and not deploy and not alone"
	$(BIN)/python -m pytest -m "alone and not soak"
	$(MAKE) test-compiled

test-compiled: compiled ## run unit, model and simulation tests on the compiled core
	$(COMPILED_TESTS)

cover: $(READY) browser ## run the test suite and measure which part of the code it executes
	$(SUITE) --cov --cov-report=
	@echo "covered: $$($(BIN)/coverage report --format=total) %; $(BIN)/coverage report says where"

mutants: $(READY) ## mutation testing of the modules that the guarantees depend on, or of one module: MODULE=...
	$(BIN)/python -m tests.mutants $(MODULE) $(if $(SAMPLE),--sample $(SAMPLE))

test-deploy: $(READY) ## test the image, compose and Kubernetes; a test whose tool is not installed is skipped
	$(BIN)/python -m pytest tests/deploy -m deploy

check: $(READY) ## check formatting, lint rules, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: $(READY) ## random faults on a real broker and two services; prints its seed; SOAK=60s is the default
	$(BIN)/python -m pytest tests/e2e/test_soak.py -m soak --soak-for $(SOAK)

bench: $(READY) compiled ## run all benchmarks; each compares two figures of the same run, and says which core it measured
	$(BIN)/python -m benches.bench_core
	$(BIN)/python -m benches.bench_wheel
	$(BIN)/python -m benches.bench_purgatory
	$(BIN)/python -m benches.bench_names
	$(BIN)/python -m benches.bench_relay --compiled --rounds 5
	$(BIN)/python -m benches.bench_overflow --compiled --rounds 5
	$(BIN)/python -m benches.bench_away --minutes 10
	$(BIN)/python -m benches.bench_poison
	$(BIN)/python -m benches.bench_api
	$(BIN)/python -m benches.bench_console --waiting 1000000
	$(BIN)/python -m benches.bench_pipeline_schedule
	$(BIN)/python -m benches.bench_pipeline_apply
	$(BIN)/python -m benches.bench_pipeline_audit

wheel: $(READY) ## build the wheel with a compiled core, for this machine, in dist/; needs a C compiler
	TARRY_COMPILE=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist .

compiled: $(COMPILED)/.ready ## create a virtual environment with a compiled core, in build/compiled; needs a C compiler

$(COMPILED)/.ready: $(READY) $(COMPILED_BY)
	$(BIN)/python -m tests.support.compiled $(COMPILED)
	@touch $@

manifests: $(READY) ## render deploy/k8s from the chart; needs helm
	$(BIN)/python deploy/render.py

lock: $(READY) ## resolve the dependencies again and write the lock files
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) pyproject.toml --all-extras -o requirements.lock
	@# The part of the lock that the image installs, and the packages that build it.
	$(LOCK) -c requirements.lock pyproject.toml --extra service --extra http -o service/requirements/service.lock
	$(LOCK) -c requirements.lock pyproject.toml --extra spark --extra postgres -o service/requirements/spark.lock
	$(LOCK) -c requirements.lock service/requirements/build.in -o service/requirements/build.lock

sbom: $(READY) ## write what we ship as CycloneDX: build/sbom
	$(BIN)/python -m deploy.sbom

audit: $(READY) ## list known flaws of what we ship; without osv.dev: ADVISORIES=DIR with records in the OSV format
	$(BIN)/python -m deploy.audit $(if $(ADVISORIES),--advisories $(ADVISORIES))

brokers: $(READY) ## run the contracts and a short end-to-end test on several versions of Kafka, or on some: KAFKA=4.1.2
	$(BIN)/python -m tests.brokers $(KAFKA)

clean: ## remove all files that make created
	rm -rf $(VENV) .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
