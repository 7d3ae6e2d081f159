# The only door: every target makes .venv from requirements.lock by itself when it has to.

PYTHON ?= python3
JOBS   ?= 2
# Tests of servers wait more than they compute.
SERVER_JOBS ?= 4
ROUNDS ?= 40
SOAK_SECONDS ?= 3600
SIEGE_SECONDS ?= 10

VENV  := .venv
BIN   := $(VENV)/bin
UV    := $(BIN)/uv
READY := $(VENV)/.ready
# The product, and the tools that are distributions of their own.
TOOLS := tools/bench tools/conformance
PROJECTS := pyproject.toml $(TOOLS:=/pyproject.toml)
PYTEST = $(BIN)/python -m pytest --dist worksteal -n
# Shells whose tests need no server: gated beside the PURE modules, which have a bound of their own.
SHELLS := src/tidewire/gateway/hub.py,src/tidewire/gateway/driver.py,src/tidewire/gateway/service.py,src/tidewire/ingest/service.py,src/tidewire/ingest/forwarding.py,src/tidewire/delivery/service.py,src/tidewire/fanout/worker.py,src/tidewire/fanout/local_ticks.py
# What also runs on servers of several processes, within a minute.
AT_THREE := tests/e2e/test_acceptance.py tests/e2e/test_ticks.py tests/e2e/test_shutdown.py
# By itself: it wants a machine that does nothing else.
ALONE := tests/web_app/test_speed.py
# Its driver keeps an event loop of its own, beside which no other test of that process can have one.
WEB_APP := tests/web_app
# A steady state takes minutes to come about, in which each mix mostly waits: beside the others, on
# servers of its own.
UNITS := tests/cluster/test_units.py
FAULTS = CLUSTER_FAULTS=on $(BIN)/python -m pytest tests/cluster/test_faults.py

# What web/ is built with. `make run` does not need it: what is built is in git.
WEB_READY := web/node_modules/.ready

# Tests start hundreds of processes; where this is set, each would compile all it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-unit test-units test-servers test-web-app test-brief-faults test-fast test-faults test-long mutants check fmt lock bench bench-against settings stubs types soak torture siege web web-check stack stack-env stack-down clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## Start the server on 127.0.0.1:8080, data in ./data (ARGS="--port 9000")
	$(BIN)/tidewire serve $(ARGS)

# `check` is mostly one process that looks at types, and unit tests do not mind what runs beside them.
# Fault tests wait for much of their time, one after the other, while browsers compute.
test: export CI := true
test: $(READY) ## Everything, as CI does: check, unit tests with the coverage gate, all other tests
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check test-unit
	@$(MAKE) --no-print-directory --jobs=2 test-servers test-units
	@$(MAKE) --no-print-directory --jobs=2 test-web-app test-brief-faults
	$(BIN)/python -m pytest $(ALONE)

test-servers: $(READY)
	CLUSTER_FAULTS=later $(PYTEST) $(SERVER_JOBS) tests --ignore=tests/unit --ignore=$(WEB_APP) --ignore=$(UNITS)
	TIDEWIRE_SERVER_PROCESSES=3 $(PYTEST) $(SERVER_JOBS) $(AT_THREE)

test-units: $(READY)
	STACK_RUN=-units $(PYTEST) 5 $(UNITS)

test-web-app: $(READY)
	$(PYTEST) $(JOBS) $(WEB_APP) $(ALONE:%=--ignore=%)

test-brief-faults: export CLUSTER_FAULT_SECONDS := 6
test-brief-faults: test-faults

test-unit: $(READY)
	CLUSTER_FAULTS=later $(PYTEST) $(JOBS) tests/unit --cov
	$(BIN)/coverage report --include=$(SHELLS) --fail-under=95

test-fast: check ## The same without DynamoDB, Kafka, Redis, Node and Chromium; the last lines say what was left out
	STACK=off WEB=off $(PYTEST) $(JOBS) tests

test-faults: $(READY) ## Kill and stop what a cluster rests on, under load (CLUSTER_FAULT_SECONDS=20)
	$(FAULTS)

check: $(READY) ## Lint, types and layering only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fmt: $(READY) ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(READY) ## Durable appends next to a bare loop, then the server next to the sketch (10 min)
	$(BIN)/tidewire bench ingest
	$(BIN)/tidewire bench compare

bench-against: $(READY) ## Server CPU a message of this tree and of commit REV, in turns (REV=HEAD~20)
	$(if $(REV),,$(error name the commit to compare with: make bench-against REV=...))
	$(BIN)/python -m tools.bench_against $(REV) $(ARGS)

soak: $(READY) ## Mixed load for SOAK_SECONDS (an hour): all delivered, nothing grows
	$(BIN)/tidewire bench soak --seconds $(SOAK_SECONDS)

torture: $(READY) ## Kill -9 under load, ROUNDS times (make torture ROUNDS=500)
	$(BIN)/python -m tests.crash.torture --rounds $(ROUNDS)

settings: $(READY) ## Write docs/settings.md from the code
	$(BIN)/python -m tools.settings_page

types: $(READY) ## Write the TypeScript types of the protocol from the code
	$(BIN)/python -m tools.wire_types

stubs: $(READY) ## Write the types of the blocking client from the async one
	$(BIN)/python -m tools.blocking_stub

siege: $(READY) ## Attack a server while two people talk; the table of docs/security.md (SIEGE_SECONDS=10)
	$(BIN)/python -m tests.e2e.siege --seconds $(SIEGE_SECONDS)

test-long: $(READY) ## At length what 'make test' does briefly: kills, power cuts, damage, attacks, faults
	$(BIN)/python -m tests.crash.torture --rounds $(ROUNDS)
	$(BIN)/python -m tests.crash.cuts --cuts 300
	$(BIN)/python -m tests.crash.damages --damages 300
	$(BIN)/python -m tests.crash.flips --copies 300
	$(BIN)/python -m tests.e2e.siege --seconds $(SIEGE_SECONDS)
	TIDEWIRE_SERVER_PROCESSES=3 STACK=off $(PYTEST) $(JOBS) tests/e2e tests/client
	TIDEWIRE_SERVER_PROCESSES=3 $(BIN)/python -m tests.e2e.siege --seconds $(SIEGE_SECONDS)
	TIDEWIRE_SERVER_PROCESSES=3 $(BIN)/python -m tests.e2e.kills --rounds $(ROUNDS)
	$(FAULTS)
	$(BIN)/python -m tests.cluster.endurance --minutes 10

mutants: $(READY) ## Put deliberate faults into a copy of the code; list those that no test notices
	$(BIN)/python -m tests.mutants.run --jobs $(JOBS) $(ARGS)

web: $(WEB_READY) ## Build the web chat and the widget into src/tidewire/web/static (needs Node 20)
	cd web && node scripts/build.mjs

web-check: $(WEB_READY) ## Types, lint, unit tests and sizes of web/, and whether what is served is what it builds
	cd web && npm run --silent check && npm run --silent test && npm run --silent size
	cd web && node scripts/build.mjs --compare

lock: $(UV) ## Resolve what product and tools need into requirements.lock (keeps what still fits; UPGRADE=1 renews)
	$(UV) pip compile $(PROJECTS) --python $(BIN)/python --quiet \
	    --universal --python-version 3.11 --all-extras --group dev --generate-hashes \
	    --no-emit-package tidewire \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	    $(if $(UPGRADE),--upgrade) --output-file requirements.lock

stack: ## Start DynamoDB Local, Kafka and Redis on loopback, data in .stack (STACK_DIR=...)
	$(PYTHON) deploy/stack/stack.py up
	@echo 'A Tidewire finds it by these settings; eval "$$(make -s stack-env)" sets them in a shell:'
	@$(PYTHON) deploy/stack/stack.py env

stack-env: ## Print the settings of a Tidewire that uses them
	@$(PYTHON) deploy/stack/stack.py env

stack-down: ## Stop them
	$(PYTHON) deploy/stack/stack.py down

clean: ## Remove the environment and everything that tools leave behind
	rm -rf $(VENV) web/node_modules build dist htmlcov .coverage .coverage.* .hypothesis
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(WEB_READY): web/package-lock.json
	@command -v node >/dev/null || { echo 'web/ is built with Node 20 or newer, which is not installed' >&2; exit 1; }
	cd web && npm ci --no-audit --no-fund
	@touch $@

# uv comes from the lock as well, with its hash: pip installs it, uv installs the rest.
$(UV):
	@$(PYTHON) -c 'import sys; sys.exit("Tidewire needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	awk '/^[a-z]/ { wanted = /^uv==/ } wanted' requirements.lock > $(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps --require-hashes --requirement $(VENV)/uv.txt

# Done again only when the lock or the project changed. The build backend is in the lock.
$(READY): requirements.lock $(PROJECTS) | $(UV)
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation \
	    --editable . $(TOOLS:%=--editable %)
	@touch $@
