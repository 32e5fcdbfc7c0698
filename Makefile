# HAL's one door for people and CI. `make help` lists the targets; .venv is made when a target first needs it.

SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
JUPYTER := $(VENV)/jupyter
COMPILE := -m hal.runtime.kernel_compiler

# Compiled kernels lie beside the packages they were compiled with, so that every target and every HAL_HOME shares them.
export HAL_CACHE ?= $(CURDIR)/$(VENV)/hal-cache

# Every `hal` process, and every process of the tests, would compile all that it imports once more.
unexport PYTHONDONTWRITEBYTECODE

# The virtual environment names its own directory; a clone that was moved gets a new one.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
MOVED := moved
endif

# A plane is a directory of tests/planes; its name makes the target test-NAME. `all` and `attacks` mean something else.
PLANES := $(sort $(filter-out __pycache__ all attacks,$(patsubst tests/planes/%/,%,$(wildcard tests/planes/*/))))
PLANE_TARGETS := $(PLANES:%=test-%)

# What `make lint` checks, two at a time: types take as long as all others.
LINTS := lint-types lint-format lint-imports lint-generated

.DEFAULT_GOAL := help
.PHONY: help setup kernels demo mutate test test-all test-attacks soak bench bench-engine bench-loop bench-sessions bench-observability lint format spec clean moved
.PHONY: $(PLANE_TARGETS) $(LINTS)

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z][a-z%-]*:.*## / { sub("%", "PLANE", $$1); printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

$(READY): pyproject.toml constraints.txt tools/setup $(MOVED)
	@tools/setup

setup: $(READY) ## make .venv with the pinned dependencies (other targets do this when needed)
	@:

# For one test, apart from all else: its 60 packages would change what others find installed.
$(JUPYTER)/.installed: $(READY) constraints.txt
	@rm -rf $(JUPYTER)
	@$(PY) -m pip install -q --disable-pip-version-check --target $(JUPYTER) -c constraints.txt jupyter-server
	@touch $@

kernels: $(READY) ## compile the engine's numba kernels (a minute or two, once per version of their source)
	@$(PY) $(COMPILE) --cache "$(HAL_CACHE)"

demo: kernels ## a workflow on this machine, then a replay of a synthetic log; plots in out/demo
	@$(PY) examples/demo/demo.py

# What fails beside others is told, and runs once more alone: what passes then is too sensitive to load, and wants mending
# too. Arguments: which tests, and how.
alone = echo "Once more alone, what failed beside others:"; \
	$(PY) -m pytest -v -m "$(1)" $(2) --maxfail 3 --last-failed --last-failed-no-failures none; tests=$$?

# Types are checked beside the tests, which wait now and then; what mypy says comes last.
test: $(READY) ## lint, types, import contracts, generated files, all fast tests (about 5 minutes)
	@$(MAKE) --no-print-directory -j 2 $(filter-out lint-types,$(LINTS)) kernels
	$(PY) -m mypy > $(VENV)/mypy.log 2>&1 & types=$$!; \
	$(PY) -m pytest -n 2 --dist worksteal -m "not slow and not soak and not attack" --cache-clear; tests=$$?; \
	if [ $$tests = 1 ]; then $(call alone,not slow and not soak and not attack); fi; \
	wait $$types; types=$$?; cat $(VENV)/mypy.log; exit $$((tests + types))

# What `make test` leaves out. It tries a fifth of the examples of each property test (tests/examples.py), these try all.
test-all $(PLANE_TARGETS) test-%: export HYPOTHESIS_PROFILE ?= ci

# Slow tests wait for processes more than they compute: four at a time, and kernels compile where all of them wait.
test-all: kernels $(JUPYTER)/.installed ## what `make test` leaves out: slow tests; all examples, with array bounds checked (about 20 minutes more)
	NUMBA_BOUNDSCHECK=1 $(PY) $(COMPILE) --for-parent --cache "$(HAL_CACHE)-boundscheck" & compiling=$$!; \
	$(PY) -m pytest -n 4 --dist worksteal -m "slow or attack" --timeout 900 --durations 20 --cache-clear; tests=$$?; \
	if [ $$tests = 1 ]; then $(call alone,slow or attack,--timeout 900); fi; \
	wait $$compiling && exit $$tests
	NUMBA_BOUNDSCHECK=1 HAL_CACHE="$(HAL_CACHE)-boundscheck" $(PY) -m pytest -n 2 --dist worksteal \
		-m "(kernels or hypothesis) and not slow and not soak and not attack" --timeout 900

test-attacks: kernels ## hostile strangers, users, jobs and nodes against a real HAL (part of test-all; as root)
	$(PY) -m pytest -n 2 tests/attacks

$(PLANE_TARGETS): test-%: kernels
	$(PY) -m pytest -n 2 -m "not soak" --timeout 900 tests/planes/$*

# Any other word: the files of tests whose path holds it.
test-%: ## all tests of one plane, or with that word in their path, slow ones too: test-tasks, test-gate, test-blobs
	@test "$$(find tests -name 'test_*.py' -path '*$**')" || \
		{ echo "no tests/planes/$*, and no tests/**/*$**; planes: $(PLANES)" >&2; exit 2; }
	@$(MAKE) --no-print-directory kernels
	$(PY) -m pytest -n 2 -m "not soak" --timeout 900 $$(find tests -name 'test_*.py' -path '*$**')

soak: kernels ## tests without a time limit: random crashes for hours; stop with Ctrl-C
	$(PY) -m pytest -m soak --timeout 0 -s

mutate: $(READY) ## make wrong versions of lifecycle, units, wire and kernels; the share that tests notice (an hour)
	$(PY) tools/mutate.py --sample 40 --report out/mutate.json

bench: kernels ## run every benchmark; JSON lines in out/bench, a table on the terminal
	$(PY) benchmarks/run.py

bench-engine: kernels ## only the engine's benchmarks; also draws docs/img/engine-growth.svg
	$(PY) benchmarks/run.py engine_

bench-loop: kernels ## the longest turn of the controller's loop under the worst requests of a user
	$(PY) benchmarks/run.py loop

bench-sessions: $(READY) ## tasks a second through a session: client, broker, workers, beside Python's process pools
	PEERS=$(PEERS) $(PY) benchmarks/run.py sessions session_slots session_mixed $(if $(PEERS),session_peers)

bench-observability: kernels ## what the collector and the page cost, and how fast they answer
	$(PY) benchmarks/run.py observability

lint: $(READY) ## ruff, formatting, mypy --strict, import contracts, drift of generated files
	@$(MAKE) --no-print-directory -j 2 $(LINTS)

lint-types: $(READY)
	$(PY) -m mypy

lint-format: $(READY)
	$(PY) -m ruff check
	$(PY) -m ruff format --check

lint-imports: $(READY)
	$(VENV)/bin/lint-imports

lint-generated: $(READY)
	$(PY) -m hal.spec --check
	$(PY) tools/sync_client.py --check

format: $(READY) ## format the code and apply safe lint fixes
	$(PY) -m ruff format
	$(PY) -m ruff check --fix

spec: $(READY) ## write the generated files (spec/, the sync client) again
	$(PY) -m hal.spec
	$(PY) tools/sync_client.py

clean: ## remove .venv, caches and everything a target wrote
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests examples benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
