# make demo: from nothing to a verified adder.   make test: the tests, the linter, the type checker.
# make test-full: the tests and those that take minutes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-full lint clean

demo: $(VENV)/.installed
	$(BIN)/adder-search run studies/57p.yaml
	$(BIN)/adder-search pull 57p --best -o best
	$(BIN)/adder-search verify best
	$(BIN)/adder-search export best -o submission.py

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest
	$(MAKE) lint

test-full: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m ""
	$(MAKE) lint

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python setup.cfg pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -e ".[test]"
	touch $@
