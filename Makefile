# make demo and make test work on a fresh machine with Python 3.11, Java 17 and make. ARGS goes to the command that is run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
ARGS ?=
# Processes that share the files of tests among them; 0 = none, the tests run one after the other. Two for each core.
WORKERS ?= 4

.DEFAULT_GOAL := help
.PHONY: help venv java demo test check format full stress mutate site bench clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with everything in it

$(STAMP): pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "Weir needs Python 3.11 or newer, and there is no $(PYTHON). Install it (Debian, Ubuntu: apt-get install" \
			"python3 python3-venv), or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Weir needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" -V 2>&1)." \
			"Name another one: make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { \
		echo "$(PYTHON) can't make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@echo "Installing Weir and all that it needs into $(VENV), which takes a few minutes the first time"
	@# In this mode Spark's workers find pyspark_weir, as where Weir is installed from a wheel.
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --config-settings editable_mode=compat --editable '.[demo,test]'
	@touch $@

java:
	@"$(JAVA)" -version >/dev/null 2>&1 || { \
		echo "Weir needs Java 17 or newer, for Spark and for the embedded Kafka broker, and $(JAVA) can't be run. Install it" \
			"(Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)" \
			"and have java on PATH, or set JAVA_HOME." >&2; exit 1; }

demo: java venv ## Real flights through an embedded Kafka and Weir, with a crash on the way
	$(BIN)/weir demo $(ARGS)

test: java venv ## All tests, of costly ones and long tables a sample (--seed N: that of an earlier run)
	$(BIN)/python tests/support/class_archives.py
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: venv ## Lint, format, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: venv ## Format and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

full: java venv ## All costly tests and rows of long tables, of which make test takes a sample
	$(BIN)/python tests/support/class_archives.py
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "(matrix or full or sample) and not stress" --sample 1 $(ARGS)

stress: java venv ## The long runs under load
	$(BIN)/python -m pytest -m stress $(ARGS)

mutate: java venv ## Small changes to production code, a sample by a printed seed: which ones no test notices
	PYTHONPATH=tests/mutation $(BIN)/python tests/mutation/mutate.py $(ARGS)

site: venv ## The documentation as web pages, with a reference made from docstrings, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build $(ARGS)

bench: java venv ## Measurements
	$(BIN)/weir bench throughput $(ARGS)

clean: ## Remove .venv and whatever else was made (not the cache of fetched jars)
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
