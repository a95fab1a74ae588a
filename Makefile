# make tune       install the tool with both frameworks and tune resnet50; other arguments by ARGS="..."
# make test       install what the tests need and run the fast ones: 8 minutes on two cores
# make test-all   run the rest: every model and setting, databases, whole studies
# make test-numa  run those that need two NUMA nodes, in a machine under qemu's software emulation
# make gpu-check  run what needs an NVIDIA GPU, tests and benchmark, into build/gpu: 45 minutes
# make check      ruff and mypy --strict, as CI runs them
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --durations 10
# a worker that has nothing left takes tests from the one that has most
WORKERS := -n 3 --dist worksteal
ARGS ?= --model resnet50 --hw auto --budget 20m

.PHONY: tune test test-all test-numa gpu-check check format schemas clean

tune: $(VENV)/tune.stamp
	$(BIN)/tune-framework $(ARGS)

test: $(VENV)/test.stamp
	$(PYTEST) -m "not slow and not alone and not numa and not gpu" $(WORKERS)

# with what needs something of the host: .ci/run has run the fast tests without its libraries
test-all: $(VENV)/test.stamp
	@status=0; set -x; \
	$(PYTEST) -m "(slow or needs) and not alone and not numa and not gpu" $(WORKERS) || status=1; \
	$(PYTEST) -m alone -n 2 --dist loadfile || status=1; \
	exit $$status

# without a kernel the tests are skipped with their reason; qemu: see .ci/run
test-numa: $(VENV)/test.stamp
	@$(BIN)/python -m tests.guest.kernel || true
	$(BIN)/python -m pytest -m numa

# without a card the tests are skipped with their reason, and nothing is measured
gpu-check: $(VENV)/test.stamp
	mkdir -p build/gpu
	$(BIN)/python -m pytest -m gpu -rA --junit-xml build/gpu/tests.xml
	@if $(BIN)/python -c 'from tuner.host.gpus import read_gpus; raise SystemExit(not read_gpus())'; \
	  then $(BIN)/python -m benchmarks.gpu build/gpu; else echo "there is no NVIDIA GPU here"; fi

check: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# the JSON Schemas that ship with the package, from the structures that write the files
schemas: $(VENV)/test.stamp
	$(BIN)/python -m tuner.record.shipped_schemas

clean:
	rm -rf $(VENV) build dist *.egg-info

# pip is told the exact versions by constraints.txt; torch 2.13.0 there is the build that the
# configured index offers (on most machines: add PyTorch's own CPU index to get the small one)
$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "error: $(PYTHON) is not installed; install it, or name another: make PYTHON=python3.12"; exit 2; }
	@echo "$(PYTHON) -m venv $(VENV)"; $(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); echo "error: cannot create $(VENV); on Debian: apt-get install python3-venv"; exit 2; }

$(VENV)/tune.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,tensorflow]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/tune.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,tensorflow,onnxruntime,openvino,nncf,loadgen,fleet,test]'
	@touch $@
