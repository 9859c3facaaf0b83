# Each target is enough on a bare machine with Python 3.11 to 3.13: it sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint format bench clean

$(VENV)/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[plot,test,lint]'
	touch $@

$(VENV)/bench-ready: $(VENV)/ready
	$(PIP) -e '.[bench]'
	touch $@

demo: $(VENV)/ready  ## fit a real data set, print the table, draw the pictures
	$(BIN)/trimreg demo --out demo-output

test: $(VENV)/ready  ## linters, then every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n auto -q

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/bench-ready  ## side by side with skglm, abess, celer; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo-output
