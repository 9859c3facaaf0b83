# Each target is enough on a bare machine with Python 3.11 to 3.13: it sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Byte code is made when a module is first imported: most of what is installed never is.
OPTIONS := install --quiet --disable-pip-version-check --no-compile -c constraints.txt
PIP = $(if $(wildcard $(BIN)/pip),$(BIN)/python -m pip,$(PYTHON) -m pip --python $(BIN)/python) $(OPTIONS)
# Kept, whatever the caller's environment says: else every process that the tests start compiles its imports.
unexport PYTHONDONTWRITEBYTECODE
SHUFFLE = $(if $(SEED),--shuffle $(SEED))

.PHONY: demo test style lint format bench mutants fuzz soak clean

# The pip of $(PYTHON) can install into the new environment, if it is recent enough; else it gets its own.
$(BIN)/python:
	if $(PYTHON) -m pip --python "$$(command -v $(PYTHON))" --version >/dev/null 2>&1; \
	then $(PYTHON) -m venv --without-pip $(VENV); else $(PYTHON) -m venv $(VENV); fi

$(VENV)/demo-ready: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[plot]'
	touch $@

# One core installs the test tools while the other one compiles the loops that the tests call.
$(VENV)/ready: $(VENV)/demo-ready
	$(BIN)/python tests/compile_kernels.py & $(PIP) -e '.[test,lint]' && wait
	touch $@

$(VENV)/bench-ready: $(VENV)/ready
	$(PIP) -e '.[bench]'
	touch $@

demo: $(VENV)/demo-ready  ## fit a real data set, print the table, draw the pictures
	$(BIN)/trimreg demo --out demo-output

# The types, which take one core, are checked beside the tests; what they print is shown after the tests.
test: style  ## linters, types and every test; SEED=1 runs the tests in random order
	$(BIN)/mypy >$(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n auto --dist worksteal -q $(SHUFFLE); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.log; exit $$((tests + types))

style: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: style  ## style, format, types
	$(BIN)/mypy

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/bench-ready  ## side by side with skglm, abess, celer; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

mutants: $(VENV)/ready  ## how many wrong formulas the tests notice
	$(BIN)/python -m benchmarks.mutants

CASES ?= 20000
FIRST ?= 0
fuzz: $(VENV)/ready  ## adversarial calls, checked by a reference; CASES=20000 FIRST=0
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --cases $(CASES) --seed $(FIRST)

soak: $(VENV)/ready  ## 10,000 fits in one process: memory, files, threads, fork
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --soak

clean:
	rm -rf $(VENV) demo-output
