# make demo: from nothing to a verified adder.   make test: the tests, the linter, the type checker.
# make test-short: what another Python may break.   make test-latest: which newest library breaks.
# make test-full: the gate before a release.   make test-faults: kills, outages, load.   make soak: an hour of faults.
# PYTHON=python3.13 does any of these on another Python, in an environment of its own (.venv-3.13).
# docs/reliability.md has all of them.   make api: pages of what is called from Python.
# make secrets: the passwords and the token of docker-compose.yml (docs/cluster.md).
PYTHON ?= python3
VENV ?= .venv$(if $(filter-out python3,$(PYTHON)),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
# A file's tests share a process, and with it what they have started.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# Nothing is installed whose hash is not in requirements/ (made of constraints.txt by `make lock`).
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
HASHED := $(PIP) --require-hashes

# What another version of Python, or of a library, can break: imports, the engine's bits, reruns, models, a run by Ray,
# a home begun under another Python.
SHORT := tests/unit/test_native.py tests/slow/test_other_python.py tests/unit/test_rerun.py tests/adders/test_registry.py \
	tests/slow/test_lifecycle.py::test_a_run_in_a_folder_of_things_that_must_not_be_taken_for_ours \
	tests/test_imports.py tests/unit/test_supported.py tests/unit/test_libraries.py tests/unit/test_ray_private.py

.PHONY: demo api test test-short test-latest test-full test-faults soak lint pages audit wheel lock secrets digests clean

demo: $(VENV)/.installed
	$(BIN)/adder-search run studies/57p.yaml
	$(BIN)/adder-search pull 57p --best -o best
	$(BIN)/adder-search verify best
	$(BIN)/adder-search export best -o submission.py

# Pages of what is called from Python, out of docstrings.
api: $(VENV)/.installed-test
	$(BIN)/sphinx-build -W --keep-going -q docs/api build/api

test: $(VENV)/.installed-test
	$(PYTEST)
	$(MAKE) lint

test-short: $(VENV)/.installed-test
	$(PYTEST) $(SHORT)

# The newest of each library that the package index has, whatever constraints.txt says.
test-latest:
	rm -rf .venv-latest
	$(MAKE) .venv-latest/.installed-test VENV=.venv-latest
	.venv-latest/bin/python requirements/latest.py

test-full: $(VENV)/.installed-test
	$(PYTEST) -m "not faults"
	tests/slow/compose.sh || [ $$? = 77 ]  # 77: no Docker engine is here
	$(MAKE) lint

test-faults: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist load --maxschedchunk=1 -m faults

# An hour of one study after another with a fault every 20 s; goes on where it was ended. SOAK=MINUTES.
SOAK ?= 60
soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.slow.soak soak --minutes $(SOAK)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What stands between markers in the pages, made again from the tables of seeds, and README's table as a picture.
pages: $(VENV)/.installed
	$(BIN)/python -m lab.pages
	$(BIN)/adder-search table --shipped --paper -o docs/constraint-table.svg

# With ADVISORIES, OSV's records of the Python packages (all.zip, or a folder of JSON files): compares, without a network.
# Without: asks the package index; --strict: one that it cannot ask about fails.
audit: $(VENV)/.installed
ifdef ADVISORIES
	$(BIN)/python requirements/audit.py $(ADVISORIES)
else
	$(HASHED) -r requirements/audit.txt
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt || \
		{ echo "Nothing is known of versions that were not audited; ADVISORIES=all.zip compares without a network." >&2; exit 1; }
endif

# dist/*.whl, with the kernels of all presets for Linux on this machine, or on ARCH=aarch64 (by aarch64-linux-gnu-g++):
# needs no compiler where it is installed.
wheel: $(VENV)/.installed-test
	rm -rf build/lib build/bdist* build/wheel
	KERNELS=build/kernels $(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --wheel-dir dist build/wheel/*.whl

# TORCH_CPU: the wheel of torch's CPU build, in the version of constraints.txt.
lock:
	$(PYTHON) requirements/lock.py $(or $(TORCH_CPU),$(error TORCH_CPU=WHEEL is missing))

SECRETS_DIR ?= secrets
secrets:
	docker/secrets.sh $(SECRETS_DIR)

# Pulls the base images and writes their digests to .env, where docker compose reads them.
digests:
	docker/digests.sh

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) model/supported.py
	$(PYTHON) -m venv $(VENV)

# torch first: its CPU build where an index or a folder that pip looks into has it, else the default one, with CUDA.
$(VENV)/.installed: $(VENV)/bin/python setup.cfg pyproject.toml lab/setup.cfg $(wildcard requirements/*.txt)
	@$(HASHED) -r requirements/torch-cpu.txt 2>/dev/null || { \
		echo "torch: pip finds no CPU build for this Python here; the one with CUDA, some gigabytes, does as well"; \
		$(HASHED) -r requirements/torch-cuda.txt; }
	$(HASHED) -r requirements/core.txt
	$(PIP) --no-build-isolation --no-index -e . -e ./lab
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(HASHED) -r requirements/test.txt
	touch $@
