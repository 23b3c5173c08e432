# Every target is what CI calls too. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEEDS ?= 0,1,2,3,4
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help setup lock format check test unit e2e demo bench tools generate image kind-e2e clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}'

# Two stamps in one virtual environment: `run` is what the demo needs, `dev` adds the tools for checks and tests.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Tiphys needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

define install
	$(BIN)/python -m pip install -q --require-hashes -r requirements/$(1).txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@
endef

$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/python
	$(call install,run)

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(BIN)/python
	$(call install,dev)
	@touch $(VENV)/.run

setup: $(VENV)/.dev ## virtual environment with everything for checks and tests

lock: $(VENV)/.dev ## recompute requirements/*.txt from pyproject.toml
	@$(BIN)/python -m pip install -q uv
	@for set in run dev operator extender train; do \
	  $(BIN)/uv pip compile pyproject.toml --extra $$set --extra build --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --no-emit-index-url -q -o requirements/$$set.txt || exit 1; done
