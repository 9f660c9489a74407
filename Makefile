# `make demo` and `make test` do all their set-up themselves: .venv from the pinned lock, then the work.
# Another interpreter: make PYTHON=python3.12 demo

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
BIN := .venv/bin
WORKERS ?= 2

# These tests compare numbers, so they are compiled as users compile. The others are compiled without optimisations, which is faster.
NUMBERS := tests/experiments/test_published_rollouts.py tests/test_theory.py tests/experiments/test_calibration.py \
	tests/deep/test_uncertainty.py tests/test_variance.py tests/tabular/test_solvers.py \
	tests/deep/test_fused.py tests/tabular/test_planner.py tests/test_closed_form.py tests/test_covariance.py tests/test_doctor.py
WEB := tests/report/test_browser.py tests/report/test_site.py tests/test_wheel.py
LONG := tests/tabular/test_loop.py::test_kept_runs_come_out_again \
	tests/learn/test_deep_agent.py::test_the_pendulum_is_learned
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

.PHONY: help setup browser demo test test-parts test-numbers test-web test-pybullet fuzz coverage lint docs wheel bench lock clean

help:
	@echo "make demo   set up everything, then Table 1, estimators against the truth, agents on DeepSea, and a page"
	@echo "make test   set up everything and run the tests"
	@echo "make test-parts    the part of make test that is compiled without optimisations"
	@echo "make test-numbers  the other part: it compares numbers, and is compiled as users compile"
	@echo "make test-web      the tests of the wheel, and of pages in a browser; root on Debian gets a Chromium by it"
	@echo "make test-pybullet  the tests of the PyBullet tasks; builds PyBullet first where there is no wheel (minutes)"
	@echo "make fuzz   10,000 odd inputs for calls, agents, command lines, environments and run folders (make test tries 300)"
	@echo "make coverage  the tests, and which lines of src/ubex they reach"
	@echo "make docs   the documentation as a site in build/site"
	@echo "make lint   ruff and mypy"
	@echo "make wheel  the wheel in dist, as pip install . builds it"
	@echo "make bench  measured speed ratios"
	@echo "make lock   resolve the dependencies again (needs uv)"

setup:
	@test -n "$(PYTHON)" || { echo "ubex needs Python 3.11 or newer on the PATH (or: make PYTHON=/path/to/python)"; exit 2; }
	@$(PYTHON) tools/bootstrap.py

demo: setup
	@$(BIN)/ubex demo

browser: setup
	@$(BIN)/python tools/browser.py --install > .venv/.chromium || true
	@test -s .venv/.chromium && echo "browser: $$(cat .venv/.chromium)" || echo "browser: no Chromium found: the browser test is skipped"

test: test-parts test-numbers

test-parts: setup
	@echo "tests: running with $(WORKERS) workers"
	@$(PYTEST) $(NUMBERS:%=--ignore=%) $(WEB:%=--ignore=%) $(LONG:%=--deselect %)

test-numbers: setup
	@echo "tests: those that compare numbers, with XLA's optimisations"
	@XLA_FLAGS= $(PYTEST) $(NUMBERS) $(LONG)

test-web: setup browser
	@$(PYTEST) $(WEB)

test-pybullet: setup
	@$(BIN)/python tools/install_pybullet.py
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/bullet "tests/test_cli.py::test_every_experiment_and_study_has_a_smoke_form[locomotion]"

fuzz: setup
	@UBEX_FUZZ=10000 $(PYTEST) tests/fuzz

coverage: setup browser
	@$(PYTEST) --cov

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

docs: setup
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet -c docs -d build/doctrees . build/site
	@echo "docs: build/site/index.html"

wheel: setup
	@$(BIN)/hatchling build --target wheel --directory dist

bench: setup
	@$(BIN)/ubex bench tabular

lock:
	uv pip compile --universal --no-emit-index-url --no-annotate --python-version 3.11 --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
