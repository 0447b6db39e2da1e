# `make demo` and `make test` do all of their own set-up. They need Python 3.11 or newer, make, and a
# package index that pip can reach; everything lands in .venv and .cache.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache/placet
PYTHON ?= $(shell for candidate in python3 python3.13 python3.12 python3.11; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$candidate && break; done)
WORKERS ?= 2

# The small base model of the demo and of the tests; service/demo/base_model.py pins and fetches it.
MODEL := $(CACHE)/smollm2-135m-instruct

export PLACET_BASE_MODEL ?= $(abspath $(MODEL))

.PHONY: help setup demo test lint type pytest policy golden bench-gate bench-audit interop build check clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready $(MODEL)/config.json ## Make .venv and the small base model, if they are not there

demo: setup ## Run the whole product on this machine, from a fine-tune to a verified export
	$(BIN)/placet demo

test: setup ## Run every check: contracts, lint, types, tests
	@$(MAKE) -k lint type pytest

lint: $(VENV)/.ready ## Check import contracts, lint and formatting
	$(BIN)/lint-imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(VENV)/.ready ## Check types
	$(BIN)/mypy

# One thread each: two test processes with two threads each are slower than this on two cores.
pytest: $(VENV)/.ready $(MODEL)/config.json ## Run the tests only
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
		--no-loadscope-reorder --timeout 600 --durations 15

policy: $(VENV)/.ready ## Test the rules: own tests, coverage by outcome, mutants, decision table
	$(BIN)/python -m policies test
	$(BIN)/python -m policies coverage
	$(BIN)/python -m policies mutate
	$(BIN)/python -m policies table

golden: $(VENV)/.ready ## Rewrite the golden files; look at the difference before committing
	PLACET_GOLDEN=1 $(BIN)/python -m pytest -q -m "not e2e and not model" -p no:randomly

# The wheel says it wants a newer Python, but its library works with any; see tests/bench/gate/README.md.
bench-gate: $(VENV)/.ready ## Measure decisions and replay, beside OPA as a library
	@ls .cache/opa/*.whl >/dev/null 2>&1 || $(BIN)/python -m pip download -q --no-deps \
		--disable-pip-version-check --python-version 3.14 --only-binary=:all: -d .cache/opa \
		opa-golib-python-bindings==0.4.4
	$(BIN)/python tests/bench/gate/bench.py --opa .cache/opa

bench-audit: $(VENV)/.ready ## Measure the audit log: tiles, proofs, exports, PostgreSQL
	$(BIN)/python -m pip install -q --disable-pip-version-check pymerkle==7.0.0
	$(BIN)/python tests/bench/audit/bench.py

# Debian: golang-go and golang-golang-x-mod-dev.
interop: $(VENV)/.ready ## Let foreign tools read what the log publishes
	$(BIN)/python tests/interop/run.py

build: $(VENV)/.ready ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --no-isolation

check: test build ## Do what a release needs: every check, then the wheel

clean: ## Remove what tests and builds leave behind
	rm -rf build dist *.egg-info .coverage .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv and the base model, too
	rm -rf $(VENV) .cache

# The stamp is written last: a set-up that was interrupted starts again where it stopped.
$(VENV)/.ready: constraints.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Placet needs Python 3.11 or newer." \
		"On Debian or Ubuntu: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual" \
		"environment. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt \
		-e ".[policies,client,service,trainer,serving,dev]"
	@touch $@

# The folder appears whole, by a rename; nothing of ours may lie in it, it is digested.
$(MODEL)/config.json: | $(VENV)/.ready
	$(BIN)/python -P -c 'import pathlib; from service.demo.base_model import obtain; \
		obtain(pathlib.Path("$(CACHE)"), print)'
