# Users need `make sweep` and `make test`, which install everything themselves.
# A comment that begins with ## is the line of its target in `make help`.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
GPU_PYTHON ?= python3
CHECKOUT := PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}"
# With an NVIDIA driver, CuPy and NCCL for its CUDA are installed, too.  Only targets that install ask the driver, at most
# once.  `make EXTRA=cuda12` does not ask, and installs again.
EXTRA = $(eval EXTRA := $(shell $(PYTHON) -I tools/cuda_extra.py))$(EXTRA)
OTHER_CUPY = $(if $(filter cuda13,$(EXTRA)),cupy-cuda12x,cupy-cuda13x)
ARGS ?=
# `make install` puts an environment, and links to the commands of pyproject.toml, below this folder.
PREFIX ?= $(HOME)/.local
ROOTED = $(if $(filter /%,$(PREFIX)),$(PREFIX),$(CURDIR)/$(PREFIX))
HOUSE = $(ROOTED)/share/collbench
SCRIPTS = $(shell sed -n '/^\[project.scripts\]/,/^$$/s/ *=.*//p' pyproject.toml)
PYTHONS ?= $(PYTHON)

.PHONY: help sweep test test-all hour install uninstall ours wheel outside lint types unit test-deploy faults fuzz mutants bench results gallery model-report train-report scan-report test-gpu bench-gpu gpu-campaign cupy compiler clean
.DEFAULT_GOAL := sweep

## Lists these targets.
help:
	@awk -F: '/^## / { line = substr($$0, 4) } /^[a-z-]+:/ && line { printf "  %-13s %s\n", $$1, line; line = "" }' Makefile
	@echo 'ARGS="..." adds options to what a target runs, as in: make sweep ARGS="--op alltoall"'

## Measures an all-reduce on all GPUs, or without a GPU on two CPU cores; the default target.
sweep: $(VENV)/.run compiler
	$(RUN)/collbench sweep --op allreduce $(ARGS)
	@echo 'next: call $(RUN)/collbench, or put collbench on the PATH: . $(RUN)/activate'

## Runs the linters, the type checker and the tests: some minutes.
test: $(VENV)/.dev compiler lint types unit

## Runs every command of the README in order, in a fresh copy: five minutes.
hour:
	@$(NEW_ENOUGH)
	@$(PYTHON) -m tools.hour

## Installs collbench and its all_reduce_perf, ... into ~/.local, or into PREFIX=FOLDER.
install: ours
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv --clear "$(HOUSE)"
	"$(HOUSE)/bin/python" -m pip install --quiet --disable-pip-version-check '.$(if $(EXTRA),[$(EXTRA)])'
	@mkdir -p "$(ROOTED)/bin"
	@for name in $(SCRIPTS); do ln -sfn "$(HOUSE)/bin/$$name" "$(ROOTED)/bin/$$name" || exit; done
	@echo "installed: $(ROOTED)/bin/collbench, and beside it $(filter-out collbench,$(SCRIPTS))"
	@case ":$$PATH:" in *":$(ROOTED)/bin:"*) ;; *) \
	echo "collbench: $(ROOTED)/bin is not on the PATH; fix: export PATH=\"$(ROOTED)/bin:\$$PATH\"" >&2 ;; esac
	@$(MAKE) --no-print-directory compiler RUN="$(HOUSE)/bin"

## Removes the files of `make install`, from ~/.local or PREFIX=FOLDER.
uninstall: ours
	rm -rf "$(HOUSE)"
	@for name in $(SCRIPTS); do rm -f "$(ROOTED)/bin/$$name" || exit; done

# Files from elsewhere are neither overwritten nor removed.
ours:
	@if [ -e "$(HOUSE)" ] && [ ! -e "$(HOUSE)/pyvenv.cfg" ]; then \
	echo "collbench: error: $(HOUSE) was not made by make install; fix: make $(MAKECMDGOALS) PREFIX=..." >&2; exit 2; fi
	@for name in $(SCRIPTS); do link="$(ROOTED)/bin/$$name"; \
	if { [ -e "$$link" ] || [ -L "$$link" ]; } && [ "$$(readlink "$$link")" != "$(HOUSE)/bin/$$name" ]; then \
	echo "collbench: error: $$link was not made by make install; fix: make $(MAKECMDGOALS) PREFIX=..." >&2; exit 2; fi; done

## Builds wheel and sdist, in dist/.
wheel: $(VENV)/bin/python
	$(RUN)/pip install --quiet --disable-pip-version-check hatchling
	@rm -f dist/collbench-*
	$(RUN)/python -m hatchling build -d dist

## Builds wheel and sdist, and installs and tests them with PYTHONS="python3.11 python3.14".
outside: wheel
	@for python in $(PYTHONS); do $$python tools/outside.py dist/collbench-* || exit; done

## Runs the linters alone.
lint: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

## Runs the type checker alone.
types: $(VENV)/.dev
	$(RUN)/mypy

## Runs the tests alone.
# Three workers for two cores: one usually waits for a child process.
unit: $(VENV)/.dev
	$(RUN)/pytest -n 3 --dist worksteal -m "not full and not machine and not deploy" $(ARGS)

## Runs the tests that `make test` leaves out.
# First whole matrices, races, the memory model, the browser, documentation and wheels; then, one at a time, the tests that
# depend on the scheduler of the machine.
test-all: $(VENV)/.dev compiler
	$(RUN)/pytest -n 3 --dist worksteal -m full $(ARGS)
	$(RUN)/pytest -m "machine and not full" $(ARGS)

## Tests the files in deploy/: two minutes.
# The files are built, checked by schemas and linters, and carried out if they need no cluster.  promtool comes with
# Debian's `prometheus`, since no wheel has it.
test-deploy: $(VENV)/.deploy compiler
	$(RUN)/pytest -n 2 --dist loadfile -m deploy tests/deploy $(ARGS)

## Tries commands under signals, kills, full disks and closed streams: five minutes.
faults: $(VENV)/.dev compiler
	$(RUN)/python -m tools.faults $(ARGS)

## Imports ten thousand broken logs; each must give rows or one line with the reason: minutes.
fuzz: $(VENV)/.dev
	FUZZ=10000 $(RUN)/pytest --timeout 1800 -k broken_file --hypothesis-show-statistics tests/commands/formats/test_reading.py

## Tries some hundred faults in copies of the kernels; the commands must notice each: minutes.
mutants: $(VENV)/.dev compiler
	$(RUN)/python -m tools.mutants $(ARGS)

## Measures collbench against its speed targets.
bench: $(VENV)/.dev compiler
	$(RUN)/python tools/bench.py

## Measures the committed CPU runs anew and writes the lessons: 15 minutes, on a quiet machine.
# It prints the constants that follow.  MPI=mpich,openmpi,FOLDER names the libraries to compare (docs/measuring.md).
results: $(VENV)/.dev compiler
	$(CHECKOUT) $(RUN)/python -m tools.remeasure --mpi $(or $(MPI),mpich)

## Draws docs/gallery from the committed runs: a minute.
gallery: $(VENV)/.dev
	$(CHECKOUT) $(RUN)/python -m tools.pages gallery

## Fits the model's constants and writes the tables of docs/model.md and docs/analysis.md: minutes.
# The errors are those on operators and machines that the fit leaves out.
model-report: $(VENV)/.dev
	$(CHECKOUT) $(RUN)/python -m tools.pages model verdicts

## Fits the planner's constants, writes docs/training-runs.csv and docs/training.md's tables: minutes.
train-report: $(VENV)/.dev
	$(CHECKOUT) $(RUN)/python -m tools.pages training

## Tests scans on simulated clusters: 20 minutes.
scan-report: $(VENV)/.dev
	$(RUN)/python -m tools.scan_report

## Runs the tests on this machine's GPU.
# The targets for a GPU run in the checkout, without an installation, with a Python that has CuPy (GPU_PYTHON).
test-gpu: cupy
	@$(CHECKOUT) $(GPU_PYTHON) -m tools.gpu.campaign --stage tests --budget 7200

## Measures collbench against its speed targets on this machine's GPU.
bench-gpu: cupy
	@$(CHECKOUT) $(GPU_PYTHON) -m tools.gpu.bench

## Runs all checks and measurements on a GPU within BUDGET=720 seconds, the most valuable first.
# The same command again does the rest.  STAGE=name[,name] selects stages of tools/gpu/stages.toml, CAMPAIGN=FOLDER is for
# the results (CONTRIBUTING.md).
gpu-campaign: cupy
	@$(CHECKOUT) $(GPU_PYTHON) -m tools.gpu.campaign

cupy:
	@$(GPU_PYTHON) -c 'import cupy, click' 2>/dev/null || \
	{ echo "collbench: error: $(GPU_PYTHON) has no CuPy, so nothing on a GPU; name one that has: GPU_PYTHON=..." >&2; exit 2; }

compiler:
	@for name in $$CXX c++ g++ clang++; do command -v $$name >/dev/null && exit 0; done; \
	"$(RUN)/python" -m ziglang version >/dev/null 2>&1 && exit 0; \
	echo "collbench: error: no C++ compiler found; fix: apt install g++, or $(RUN)/pip install ziglang" >&2; exit 2

NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "collbench: error: $(PYTHON) is older than 3.11; fix: make PYTHON=python3.12" >&2; exit 2; }

$(VENV)/bin/python:
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)

ifeq ($(origin EXTRA),command line)
.PHONY: $(VENV)/.run $(VENV)/.dev
endif

# Two CuPys in one environment break each other, and another driver may need the other one.
$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	@$(if $(EXTRA),$(RUN)/pip uninstall --quiet --quiet --yes $(OTHER_CUPY))
	$(RUN)/pip install --quiet --disable-pip-version-check --editable '.$(if $(EXTRA),[$(EXTRA)])'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@$(RUN)/pip uninstall --quiet --quiet --yes $(OTHER_CUPY)
	$(RUN)/pip install --quiet --disable-pip-version-check --editable '.[dev,$(or $(EXTRA),names)]'
	@touch $@ $(VENV)/.run

$(VENV)/.deploy: $(VENV)/.dev
	$(RUN)/pip install --quiet --disable-pip-version-check --editable '.[deploy-test]'
	@touch $@

## Removes the environment and the caches of tools.
clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
