# Everything a contributor or a CI types. Each target makes what it needs, from a bare checkout on.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Tests start programs by the thousand; each would compile every module anew where an image forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.dev
# Extras stay in the lock: pip would judge `coverage[toml]` by its newest release, which has no hash here, and refuse the whole file.
LOCK := $(BIN)/uv pip compile --system-certs --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras
# Two processes take file by file, each with servers of its own; tests/support/xdist_order.py lets folders that compute and that wait take turns.
TESTS := $(wildcard $(addprefix tests/,pipeline faults acceptance examples compatibility security containers mutants integration contract simulation unit))
WORKERS ?= 2
# What the documentation site shows or links to.
PAGES := README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md LICENSE docs examples tests/compatibility/cells.py

.PHONY: help venv lock lint format types imports unit test test-all examples demo pipeline-demo test-faults compatibility soak simulate mutants mutation readers bench bench-long bench-rivals bench-share bench-designs bench-pipeline bench-pipeline-long conventions audit docs docs-serve wheel clean FORCE

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 22

venv: $(STAMP) ## make .venv from the lock file

# One environment that grows: the demos need a part of what development needs.
$(VENV)/.%: requirements/%.txt .ci/make-venv .ci/install
	@.ci/make-venv $(VENV) $<
	@touch $@

lock: $(STAMP) ## resolve the dependencies again into requirements/
	@$(LOCK) --upgrade pyproject.toml --extra console --output-file requirements/runtime.txt
	@$(LOCK) --upgrade pyproject.toml --constraints requirements/runtime.txt --extra console --extra dev --extra local --extra pipeline --output-file requirements/dev.txt
	@printf '%s\n' 'hatchling>=1.27' 'editables>=0.5' | $(LOCK) --constraints requirements/dev.txt --extra console --extra local - pyproject.toml --output-file requirements/demo.txt
	@printf '%s\n' 'hatchling>=1.27' 'editables>=0.5' | $(LOCK) --constraints requirements/dev.txt --extra console --extra local --extra pipeline - pyproject.toml --output-file requirements/pipeline.txt
	@echo 'hatchling>=1.27' | $(LOCK) --constraints requirements/dev.txt --output-file requirements/build.txt -
	@printf '%s\n' 'zensical>=0.0.73' 'mkdocstrings-python>=2' | $(LOCK) --upgrade --output-file requirements/docs.txt -
	@echo 'mutmut>=3.8' | $(LOCK) --constraints requirements/dev.txt --output-file requirements/mutation.txt -
	@printf '%s\n' 'dbt-core<1.12' 'dbt-duckdb>=1.11' 'duckdb==1.5.5' 'duckdb-extension-delta==1.5.5' 'ipykernel>=7' 'nbclient>=0.11' 'pyarrow>=21' 'pyspark>=4.2,<4.3' \
		| $(LOCK) --upgrade --output-file requirements/readers.txt -
	@echo 'uv>=0.9' | $(LOCK) --upgrade --output-file requirements/uv.txt -
	@printf '%s\n' pip-audit cyclonedx-bom | $(LOCK) --upgrade --output-file requirements/audit.txt -

lint: $(STAMP) ## rules and format (ruff)
	@echo "lint: ruff rules and format"
	@$(BIN)/ruff check --quiet relay tests examples
	@$(BIN)/ruff format --check --quiet relay tests examples

format: $(STAMP) ## write the format, and what ruff can correct by itself
	@$(BIN)/ruff check --quiet --fix relay tests examples
	@$(BIN)/ruff format --quiet relay tests examples

types: $(STAMP) ## static types (mypy --strict)
	@echo "types: mypy --strict"
	@$(BIN)/mypy

imports: $(STAMP) ## which module may import which (import-linter)
	@echo "imports: layers"
	@$(BIN)/lint-imports --no-logo --no-cache

unit: $(STAMP) ## the tests that need no server
	@$(BIN)/python -m pytest -q tests/unit

RUN := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: lint types imports ## lint, types, imports and tests on private servers, WORKERS=2 at a time; of the slow tests a quarter, by the day
	@echo "test: $(TESTS)"
	@TEST_PART=$${TEST_PART:-today} $(RUN) $(TESTS)

test-all: lint types imports ## the same with all slow tests; writes tests/slow_tests.json
	@echo "test-all: $(TESTS)"
	@TEST_PART=all $(RUN) --write-slow-tests $(TESTS)

examples: $(STAMP) ## the programs of examples/ against private servers; those whose language is missing here are skipped, with REQUIRE_EXAMPLES=1 a failure
	@$(BIN)/python -m pytest -q tests/examples

demo: $(VENV)/.demo ## the product end to end, on private servers
	@$(BIN)/relay demo

pipeline-demo: $(VENV)/.pipeline ## archive, lake, numbers, retention and replay end to end; what is missing is fetched, Java too
	@$(BIN)/relay pipeline demo

test-faults: $(STAMP) ## each fault some 20 times (hours; continues where it was cut short), then the pipeline's: 20 kills among 4 million rows
	@status=0; $(BIN)/python -m pytest -v --fault-runs build/faults.jsonl tests/faults || status=$$?; \
		$(BIN)/python -m tests.support.faults.docs_table build/faults.jsonl; [ $$status -eq 0 ] || [ $$status -eq 5 ]
	@FAULT_LONG=1 FAULT_REPEATS=20 FAULT_ROWS=200000 $(BIN)/python -m pytest -q --durations=0 --durations-min=1 \
		tests/pipeline/test_export_faults.py tests/pipeline/test_export_refused.py tests/pipeline/test_standalone.py \
		tests/pipeline/test_interrupts.py tests/security/test_canary_export.py

soak: $(STAMP) ## load and a random fault each minute for HOURS=2 on private servers; the ledger must add up and no line may rise
	@$(BIN)/python -m tests.soak --hours $${HOURS:-2}

compatibility: $(STAMP) ## the tests on each pair of PostgreSQL 15-18 and RabbitMQ 3.10-4.3, or ONLY="18/4.3 borders"; hours, continues where it was cut short
	@$(BIN)/python -m tests.compatibility $(ONLY)

simulate: $(STAMP) ## the relay between a database and a broker in memory: SIMULATION_SEEDS=100 seeds of SIMULATION_STEPS=5000 steps
	@SIMULATION_SEEDS=$${SIMULATION_SEEDS:-100} SIMULATION_STEPS=$${SIMULATION_STEPS:-5000} $(BIN)/python -m tests.simulation

mutants: $(STAMP) ## switch off each safeguard in a copy and see its test turn red; a few minutes, writes docs/mutants.md
	@$(BIN)/python -m tests.mutants --write

# An environment of its own, which sees what development has got but not the checkout: the mutants are in copies.
build/mutmut/.made: requirements/mutation.txt | $(STAMP)
	@echo "mutation: installing $< into build/mutmut"
	@$(BIN)/python -m venv --clear build/mutmut
	@.ci/install build/mutmut $<
	@purelib='import sysconfig; print(sysconfig.get_path("purelib"))'; \
		$(BIN)/python -c "$$purelib" > "$$(build/mutmut/bin/python -c "$$purelib")/development.pth"
	@touch $@

mutation: build/mutmut/.made ## change every expression of the modules in survey.toml, or of its group ONLY=store; continues where it was cut short, writes docs/mutants.md
	@WORKERS=$(WORKERS) build/mutmut/bin/python -m tests.mutants.survey --write $(ONLY)

bench: $(STAMP) ## the relay compared with a publisher that does nothing else: rate, CPU, WAL, delays, start, rest; 15 minutes or so on a quiet machine
	@$(BIN)/python -m tests.bench.speed

bench-long: $(STAMP) ## what takes longer: a million and 10 million waiting, a snapshot held for 10 minutes, a large archive, where a microsecond goes; up to 25 GB below /tmp
	@$(BIN)/python -m tests.bench.speed --long

bench-rivals: $(STAMP) ## other outbox relays on the same servers, installed into build/rivals: rate, delay, what bad messages and kill -9 do
	@$(BIN)/python -m tests.bench.rivals

bench-share: $(STAMP) ## one exchange's delay while another is flooded: 3 rounds with a million messages waiting, some ten minutes
	@$(BIN)/python -m tests.bench.share

bench-designs: $(STAMP) ## ways to find claimable messages, side by side: CPU, WAL, pages, what each finds; some minutes
	@$(BIN)/python -m tests.bench.designs

bench-pipeline: $(STAMP) ## what the pipeline costs compared with Spark's own reader and writer; some minutes
	@$(BIN)/python -m tests.bench.pipeline

bench-pipeline-long: $(STAMP) ## a driver's memory from 1 to 10 million rows, few new rows next to many, and lakes of 1 to 100 million rows; 40 GB below /tmp
	@$(BIN)/python -m tests.bench.pipeline --long

conventions: $(STAMP) ## each documented behaviour and the tests that prove it
	@$(BIN)/python -m pytest -q --conventions $(TESTS)

# The tools of the audit have an environment of their own: they are no part of what they judge.
build/audit/.made: requirements/audit.txt | $(STAMP)
	@echo "audit: installing $< into build/audit"
	@$(BIN)/python -m venv --clear build/audit
	@.ci/install build/audit $<
	@touch $@

audit: build/audit/.made ## the locked packages: known vulnerabilities, CycloneDX lists and licences in build/
	@build/audit/bin/python .ci/audit.py "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

# Programs that read the lake have an environment of their own: delta-spark, and DuckDB's extension for Delta, need older versions of Spark and DuckDB
# than development has. Spark brings Ivy along, which fetches jars.
build/readers/.made: requirements/readers.txt $(wildcard requirements/delta/*) | $(STAMP)
	@echo "readers: installing $< into build/readers (1.1 GB, a minute or two)"
	@$(BIN)/python -m venv --clear build/readers
	@.ci/install build/readers $<
	@java -jar build/readers/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -settings requirements/delta/ivysettings.xml -cache build/readers/ivy \
		-ivy requirements/delta/ivy.xml -retrieve 'build/readers/jars/[artifact]-[revision].[ext]' -warn >/dev/null
	@cd build/readers/jars && sha256sum --quiet -c ../../../requirements/delta/sha256
	@touch $@

readers: build/readers/.made $(STAMP) ## DuckDB, delta-spark, dbt, a notebook and a metastore on the lake; without their packages `make test` skips them
	@REQUIRE_READERS=1 $(BIN)/python -m pytest -q tests/pipeline/test_readers.py tests/pipeline/test_reader_examples.py

# The site's tools have an environment of their own, since no test needs them.
build/docs/.made: requirements/docs.txt | $(STAMP)
	@echo "docs: installing $< into build/docs"
	@$(BIN)/python -m venv --clear build/docs
	@.ci/install build/docs $<
	@touch $@

build/site/pages: FORCE
	@rm -rf $@
	@for page in $$(git ls-files $(PAGES)); do mkdir -p "$@/$$(dirname "$$page")" && ln -sr "$$page" "$@/$$page"; done

docs: build/docs/.made build/site/pages ## build the documentation site into build/site/html; a dead link fails
	@build/docs/bin/zensical build --strict

docs-serve: build/docs/.made build/site/pages ## serve the site on localhost:8000, built again after each change
	@build/docs/bin/zensical serve

wheel: $(STAMP) ## build the wheel into dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean: ## remove what the other targets made
	@rm -rf $(VENV) build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find relay tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
