# Each target sets up what it needs: Python 3.11 or newer, make and pip are enough. PYTHON=… names the Python to use.

BIN := .venv/bin
PYTHON ?=
AREA ?=
WORKERS ?= 2
PYTEST_ARGS ?=

export PYTHON
# The pyright package otherwise asks the network, at each run, whether it is the newest.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help setup model demo test test-editors check format bench soak docs

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: ## make .venv and install the project into it
	@./.ci/setup

model: setup
	@$(BIN)/openprogram models install

demo: model ## route real messages with a real language model
	@$(BIN)/python examples/support/demo.py

test: model ## run the test suite (PYTEST_ARGS="-k name" for a part of it)
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

test-editors: ## tests inside real editors
	@echo "test-editors: there are no editor tests yet; nothing was run"

check: setup ## format, lint, types and architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture

format: setup ## write what `make check` wants
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure against the bars (AREA=imports for one area)
	$(BIN)/python -m benchmarks $(AREA)

soak: model ## long campaigns: the tests marked soak
	@$(BIN)/python -m pytest -m soak --timeout=0 $(PYTEST_ARGS); code=$$?; \
	if [ $$code -eq 5 ]; then echo "soak: no test is marked soak yet; nothing was run"; else exit $$code; fi

docs: model ## run the examples of the documents
	$(BIN)/python -m pytest tests/docs $(PYTEST_ARGS)
