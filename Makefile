SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

.PHONY: help venv lock lint types imports unit test demo conventions wheel clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 14

venv: $(STAMP) ## make .venv from the lock file

$(STAMP): requirements/dev.txt .ci/make-venv
	@.ci/make-venv $(VENV)
	@touch $@

lock: $(STAMP) ## resolve the dependencies anew into requirements/*.txt
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade pyproject.toml -o requirements/runtime.txt
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -c requirements/runtime.txt pyproject.toml --extra dev --extra local -o requirements/dev.txt

lint: $(STAMP) ## ruff: rules and format
	@$(BIN)/ruff check --quiet relay tests
	@$(BIN)/ruff format --check --quiet relay tests
