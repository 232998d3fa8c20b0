# What one does with this checkout. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock"
SAMPLES := samples/letter.jpg samples/newspaper.png

.DEFAULT_GOAL := help
.PHONY: help run dev test check prove bench lock clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

run: $(VENV)/.run ## Set up what the main job needs, then turn the two sample pages into drafts.
	$(BIN)/scribe run $(SAMPLES) --export .scribe/exports

dev: $(VENV)/.run ## Start the database, Dagster's web UI, its daemon and the sensors.
	$(BIN)/scribe dev

test: $(VENV)/.dev ## Set up what the tests need, then run them, the proofs at a small size.
	$(BIN)/pytest

check: $(VENV)/.dev ## Lint, check the format, the types and the arrows between the rooms.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

prove: $(VENV)/.dev ## Run the proofs at full size (tests/sizes.toml says how large and how long).
	SCRIBE_PROOF_SIZE=prove $(BIN)/pytest -m proof

bench: $(VENV)/.dev ## Measure the pipeline against the bare engines, and the queue and the outcome scan by themselves.
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/job_queue.py
	$(BIN)/python benchmarks/outcome_scan.py

lock: $(BIN)/uv ## Resolve the dependencies anew into the two requirements files.
	$(LOCK) --upgrade --all-extras pyproject.toml -o $(VENV)/all.txt
	$(LOCK) --extra kraken --extra dev -c $(VENV)/all.txt pyproject.toml -o requirements-dev.txt
	$(LOCK) --extra kraken -c $(VENV)/all.txt pyproject.toml -o requirements.txt

clean: ## Stop the embedded server and remove what was set up; .scribe, with its pages, stays.
	-$(BIN)/scribe db stop
	rm -rf $(VENV)

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "Scribe needs Python 3.11, 3.12 or 3.13; say which with: make PYTHON=python3.12 run"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)

# Everything is compiled at once, so that none of Dagster's many processes compiles it again.
$(VENV)/.run: $(BIN)/uv requirements.txt pyproject.toml
	@echo "Setting up: several GB to download, 7 GB on disk; this is done once."
	$(INSTALL) -r requirements.txt
	$(BIN)/uv pip install --quiet --no-deps -e .
	@touch $@

$(VENV)/.dev: $(BIN)/uv requirements-dev.txt pyproject.toml
	@echo "Setting up: several GB to download, 7 GB on disk; this is done once."
	$(INSTALL) -r requirements-dev.txt
	$(BIN)/uv pip install --quiet --no-deps -e .
	@touch $@
