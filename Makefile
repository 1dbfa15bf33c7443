# make demo: from nothing to a verified adder.   make test: the tests, the linter, the type checker.
# make test-full: the gate before a release.   make test-faults: kills, outages, load. docs/reliability.md has both.
# make secrets: the passwords and the token of docker-compose.yml (docs/cluster.md).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A file's tests share a process, and with it what they have started.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-full test-faults lint audit secrets clean

demo: $(VENV)/.installed
	$(BIN)/adder-search run studies/57p.yaml
	$(BIN)/adder-search pull 57p --best -o best
	$(BIN)/adder-search verify best
	$(BIN)/adder-search export best -o submission.py

test: $(VENV)/.installed-test
	$(PYTEST)
	$(MAKE) lint

test-full: $(VENV)/.installed-test
	$(PYTEST) -m "not faults"
	$(MAKE) lint

test-faults: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist load --maxschedchunk=1 -m faults

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Asks the package index for advisories about every pinned version; --strict: one that it cannot ask about fails.
audit: $(VENV)/.installed
	$(PIP) -e ".[audit]"
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

SECRETS_DIR ?= secrets
secrets:
	docker/secrets.sh $(SECRETS_DIR)

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
