# Everything here works as the first command on a fresh machine: it makes its own environment.
# Needs only make and Python >= 3.11 with its venv module; an installed uv is used when there is one.

PYTHON ?= python3
UV_VERSION := 0.13.9
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
READY := .venv/.ready
BIN := .venv/bin

export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
export UV_COMPILE_BYTECODE := 1

.PHONY: install compiled demo test test-slow test-long test-container test-agents bench lint check check-all clean
.DELETE_ON_ERROR:

install: $(READY)

$(READY): pyproject.toml uv.lock $(filter .uv/%,$(UV))
	@echo "installing into .venv; this takes a minute or more, the first time" >&2
	@$(UV) sync --frozen --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@

# Services and sandboxes are many short processes: where the environment forbids writing byte code, each would compile everything again.
compiled: $(READY)
	@$(BIN)/python -m compileall -q orchestrator grader_service

.uv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed; say which with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv .uv \
		|| { echo "the venv module is missing: install it (Debian: apt-get install python3-venv), or install uv" >&2; exit 1; }
	@.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

demo: compiled ## 12 tasks x 5 samples x 3 agents, with a report; no key and no network needed
	@$(BIN)/orchestrate submit manifests/demo.yaml

test: compiled ## the default suite, under 5 minutes
	@$(BIN)/pytest -n 4

test-slow: compiled ## seeds, soak and chaos
	@$(BIN)/pytest -m slow --timeout 1800

test-long: compiled ## whole runs of ten seconds and more
	@$(BIN)/pytest -n 4 -m 'long and not slow' --timeout 300

test-container: compiled ## sandboxes in containers; needs podman or docker, and root
	@$(BIN)/pytest -n 4 -m 'container and not slow' --timeout 300

test-agents: compiled ## clients and coding agents as PyPI and npm have them, with scripted models
	@$(BIN)/pytest -m 'registry and not slow' --timeout 600

bench: compiled ## measures, as ratios
	@$(BIN)/pytest -m bench --timeout 1800 -s

lint: $(READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .venv/.lint-imports || { cat .venv/.lint-imports; exit 1; }

check: lint test ## before every commit

check-all: lint compiled ## what CI runs: also long runs, and containers and agents of registries, where there are any
	@$(BIN)/pytest -n 4 -m 'not slow and not cluster and not bench'

clean:
	@rm -rf .venv .uv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
