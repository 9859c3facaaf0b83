# Each target is enough on a bare machine with Python 3.11 to 3.13: it sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(PYTHON) requirements/install.py $(VENV)
# Kept, whatever the caller's environment says: else every process that the tests start compiles its imports.
unexport PYTHONDONTWRITEBYTECODE
SHUFFLE = $(if $(SEED),--shuffle $(SEED))

.PHONY: demo test style lint format bench mutants fuzz soak docs package pins test-lowest test-newest clean

$(VENV)/demo-ready: pyproject.toml requirements/install.py requirements/demo.txt
	$(INSTALL) demo
	touch $@

# The test tools are installed while the loops that the tests call are compiled.
$(VENV)/ready: $(VENV)/demo-ready requirements/test.txt requirements/torch.txt
	$(BIN)/python tests/compile_kernels.py & $(INSTALL) test && wait
	touch $@

$(VENV)/bench-ready: $(VENV)/ready requirements/bench.txt
	$(INSTALL) bench
	touch $@

$(VENV)/docs-ready: $(VENV)/ready requirements/docs.txt
	$(INSTALL) docs
	touch $@

$(VENV)/package-ready: $(VENV)/demo-ready requirements/package.txt
	$(INSTALL) package
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

# Outdated packages warn of each other; what the library itself calls is read in make test.
test-lowest test-newest: test-%:  ## the tests with the lowest and the newest versions that pyproject.toml allows
	$(PYTHON) requirements/install.py .venv-$* $*
	.venv-$*/bin/python -m pytest -n auto --dist worksteal -q $(SHUFFLE) \
	  -W ignore::DeprecationWarning -W ignore::FutureWarning

package: $(VENV)/package-ready  ## wheel and sdist in dist/, built twice, checked, tried in a bare environment
	$(BIN)/python requirements/package.py dist

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/trimreg/__init__.py)
docs: $(VENV)/docs-ready  ## the site in site/VERSION, without network; GALLERY=0 does not run the examples
	TRIMREG_GALLERY=$(or $(GALLERY),1) OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs site/$(VERSION)
	$(BIN)/python docs/check.py site/$(VERSION)

pins: $(VENV)/demo-ready  ## the lists of pinned packages; UPGRADE=1 takes the newest versions
	$(BIN)/python requirements/pin.py $(BIN)/uv $(UPGRADE)

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest demo-output dist site docs/api docs/gallery
