# Every target is what CI calls too. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
VENV_TRAIN ?= .venv-train
BIN := $(VENV)/bin
# One thread for every numeric library: unpinned, small products slow down sixfold on a busy machine.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
KEEP ?=

.DEFAULT_GOAL := help
.PHONY: help setup lock format docs check unit fuzz soak train-test contract e2e e2e-1.35 test tools demo bench generate image kind-e2e kind-metrics kind-scaling scale-windows clean

help: ## list the targets
	@grep -hE '^[a-z0-9.-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  \033[1m%-10s\033[0m %s\n", $$1, $$2}'

# ---- installation: two stamps in one virtual environment -------------------------------------------------------------
# `run` is what the demo needs, `dev` adds the tools for checks and tests.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Tiphys needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

define install
	$(BIN)/python -m pip install -q --require-hashes -r requirements/$(1).txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e . -e testbed
	@touch $@
endef

$(VENV)/.run: requirements/run.txt pyproject.toml testbed/pyproject.toml | $(BIN)/python
	$(call install,run)

$(VENV)/.dev: requirements/dev.txt pyproject.toml testbed/pyproject.toml | $(BIN)/python
	$(call install,dev)
	@touch $(VENV)/.run

setup: $(VENV)/.dev ## install everything for checks and tests into .venv

# uv itself is pinned by hand in requirements/lock.txt, which `echo uv==VERSION | uv pip compile - ...` makes with the options below.
lock: $(VENV)/.dev ## recompute requirements/*.txt from pyproject.toml
	@$(BIN)/python -m pip install -q --require-hashes -r requirements/lock.txt
	@for set in run dev operator extender train rollouts; do \
	  $(BIN)/uv pip compile pyproject.toml --extra $$set --extra build --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --no-emit-index-url -q -o requirements/$$set.txt || exit 1; done

tools: $(VENV)/.run ## build kube-apiserver, etcd, kwok, helm, prometheus ... from Go modules (12 min once, then cached)
	$(BIN)/tiphys tools build

# ---- daily work ----------------------------------------------------------------------------------------------------

format: $(VENV)/.dev ## rewrite sources in the project's format
	$(BIN)/ruff check -q --fix-only .
	$(BIN)/ruff format -q .

generate: $(VENV)/.dev ## rewrite CRDs, dashboards, alerts, runbook and reference pages from code
	$(BIN)/python -m tiphys_models.api.crd
	$(BIN)/python -m tiphys_cli.observability
	$(BIN)/python docs/generate.py

check: $(VENV)/.dev ## format, lint, types, import contracts, generated files
	$(BIN)/ruff format --check -q . || { echo "run: make format"; exit 1; }
	$(BIN)/ruff check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache >/dev/null || { $(BIN)/lint-imports --no-cache; exit 1; }
	@$(MAKE) -s generate
	@git diff --exit-code --stat -- manifests helm docs/runbook.md docs/reference || { echo "generated files differ: commit what 'make generate' wrote"; exit 1; }
	@$(MAKE) -s docs

docs: $(VENV)/.dev ## the documentation as a site in out/site; a link that leads nowhere is an error
	@mkdir -p out; $(BIN)/zensical build --strict >out/docs.log 2>&1 || { cat out/docs.log; exit 1; }

unit: $(VENV)/.dev ## unit and contract tests: no network, no cluster
	$(BIN)/pytest tests -q --durations=10

$(VENV_TRAIN)/.train: requirements/rollouts.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV_TRAIN)
	$(VENV_TRAIN)/bin/python -m pip install -q --require-hashes -r requirements/rollouts.txt
	$(VENV_TRAIN)/bin/python -m pip install -q --require-hashes -r requirements/dev.txt
	$(VENV_TRAIN)/bin/python -m pip install -q --no-deps --no-build-isolation -e . -e testbed
	@touch $@

train-test: $(VENV_TRAIN)/.train ## what CI leaves out: training learns, stops and resumes, and plays on Ray (torch and Ray: 6 GB)
	$(VENV_TRAIN)/bin/pytest tests/placement tests/selection tests/scaling tests/streams tests/cli/test_train.py -q

fuzz: $(VENV)/.dev ## a million objects of the API server's own grammar against every sink and parser, from another seed each time
	TIPHYS_FUZZ_OBJECTS=$${TIPHYS_FUZZ_OBJECTS:-1000000} TIPHYS_FUZZ_SEED=$${TIPHYS_FUZZ_SEED:-$$(date +%s)} \
	  $(BIN)/pytest tests/fuzz -q --timeout=0 -p no:logging

soak: $(VENV)/.dev ## operator and extender against an API server that is slow, throttles and compacts (5 min)
	$(BIN)/pytest tests/soak.py -q -s

contract: $(VENV)/.dev ## 100,000 generated requests, answers decoded by kube-scheduler's own Go types
	$(BIN)/pytest e2e/test_go_contract.py -q

e2e: $(VENV)/.dev tools ## end-to-end tests on the local control plane
	$(BIN)/pytest e2e -q --durations=30

e2e-1.35: $(VENV)/.dev ## the same tests on the second Kubernetes version (builds it: 6 min once)
	$(BIN)/pytest e2e -q --kubernetes=1.35

test: check unit e2e ## everything above: what CI runs

# ---- the main job --------------------------------------------------------------------------------------------------

demo: $(VENV)/.run ## local control plane, 60 s of functions through Tiphys and the plain scheduler, report (KEEP=1 leaves it running)
	$(BIN)/tiphys demo $(if $(KEEP),--keep)

bench: $(VENV)/.dev ## the published benchmarks; --check where every claim holds (selection takes up to half an hour, binding longer, placement five minutes)
	$(BIN)/tiphys bench extender --check --out out/bench/extender
	$(BIN)/tiphys bench scheduler --check --out out/bench/scheduler
	$(BIN)/tiphys bench placement --check --out out/bench/placement
	$(BIN)/tiphys bench selection --out out/bench/selection
	$(BIN)/tiphys bench scaling --out out/bench/scaling
	$(BIN)/tiphys bench binding --out out/bench/binding
	$(BIN)/tiphys bench binder --check --out out/bench/binder

image: $(VENV)/.run ## container images of operator and extender, and how large they are
	$(BIN)/tiphys kind images

kind-e2e: $(VENV)/.dev ## real nodes: images, kind cluster (Docker, or podman as root), chart, tests, delete (KEEP=1 keeps it, EXISTING=1 uses KUBECONFIG, K8S=1.35)
	$(BIN)/tiphys kind packages
	$(BIN)/tiphys kind e2e $(if $(KEEP),--keep) $(if $(EXISTING),--existing) $(if $(K8S),--kubernetes=$(K8S))

kind-metrics: $(VENV)/.dev ## real nodes, real metrics: every input of a decision, policies on real functions; the tables of docs/kind.md (KEEP=1, K8S=1.35)
	$(BIN)/tiphys kind packages
	$(BIN)/tiphys kind metrics $(if $(KEEP),--keep) $(if $(K8S),--kubernetes=$(K8S))

scale-windows: $(VENV)/.dev ## a thousand ScalingPolicies with windows of 15 s on one core, against the local control plane; 16 minutes
	$(BIN)/tiphys bench scale --part windows --check

kind-scaling: $(VENV)/.dev ## real nodes, real load: Tiphys, HPA and VPA scale one service, one after the other; the table of docs/kind.md (KEEP=1)
	$(BIN)/tiphys kind packages
	$(BIN)/tiphys kind scaling --markdown --out out/kind-scaling $(if $(KEEP),--keep)

clean: ## remove what make made inside the clone (the tool cache outside stays)
	rm -rf $(VENV) $(VENV_TRAIN) out dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
