# Two commands are all a user needs: `make sweep` and `make test`.  Both set everything up by themselves.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
GPU_PYTHON ?= python3
CHECKOUT := PYTHONPATH=".$${PYTHONPATH:+:$$PYTHONPATH}"
# With an NVIDIA driver on the machine, CuPy and NCCL for its CUDA are installed too.  The driver is asked at most once,
# and only by what installs; `make EXTRA=cuda12` asks nobody, and installs although something is installed already.
EXTRA = $(eval EXTRA := $(shell $(PYTHON) -I tools/cuda_extra.py))$(EXTRA)
OTHER_CUPY = $(if $(filter cuda13,$(EXTRA)),cupy-cuda12x,cupy-cuda13x)
ARGS ?=
# Where `make install` puts an environment of its own, and a link to its command.
PREFIX ?= $(HOME)/.local
ROOTED = $(if $(filter /%,$(PREFIX)),$(PREFIX),$(CURDIR)/$(PREFIX))
HOUSE = $(ROOTED)/share/collbench
LINK = $(ROOTED)/bin/collbench
# What `make outside` tries: PYTHONS="python3.11 python3.14".
PYTHONS ?= $(PYTHON)

.PHONY: sweep test test-all hour install uninstall ours wheel outside lint types unit test-deploy faults fuzz mutants noisy bench results gallery model-report train-report test-gpu bench-gpu gpu-campaign cupy compiler clean
.DEFAULT_GOAL := sweep

sweep: $(VENV)/.run compiler
	$(RUN)/collbench sweep --op allreduce $(ARGS)

test: $(VENV)/.dev compiler lint types unit

# A new user's hour: every command of the README, as printed and in its order, in a fresh copy.  Takes two minutes.
hour:
	@$(NEW_ENOUGH)
	@$(PYTHON) -m tools.hour

install: ours
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv --clear "$(HOUSE)"
	"$(HOUSE)/bin/python" -m pip install --quiet --disable-pip-version-check '.$(if $(EXTRA),[$(EXTRA)])'
	@mkdir -p "$(ROOTED)/bin"
	@ln -sfn "$(HOUSE)/bin/collbench" "$(LINK)"
	@echo "installed: $(LINK)"
	@case ":$$PATH:" in *":$(ROOTED)/bin:"*) ;; *) \
	echo "collbench: $(ROOTED)/bin is not on the PATH; fix: export PATH=\"$(ROOTED)/bin:\$$PATH\"" >&2 ;; esac
	@$(MAKE) --no-print-directory compiler RUN="$(HOUSE)/bin"

uninstall: ours
	rm -rf "$(HOUSE)" "$(LINK)"

# Nothing that somebody else put there is overwritten or removed.
ours:
	@if [ -e "$(HOUSE)" ] && [ ! -e "$(HOUSE)/pyvenv.cfg" ]; then \
	echo "collbench: error: $(HOUSE) was not made by make install; fix: make $(MAKECMDGOALS) PREFIX=..." >&2; exit 2; fi
	@if { [ -e "$(LINK)" ] || [ -L "$(LINK)" ]; } && [ "$$(readlink "$(LINK)")" != "$(HOUSE)/bin/collbench" ]; then \
	echo "collbench: error: $(LINK) was not made by make install; fix: make $(MAKECMDGOALS) PREFIX=..." >&2; exit 2; fi

# Wheel and sdist, in dist/.
wheel: $(VENV)/bin/python
	$(RUN)/pip install --quiet --disable-pip-version-check hatchling
	@rm -f dist/collbench-*
	$(RUN)/python -m hatchling build -d dist

# Both, installed with all that they need by each of PYTHONS into a new environment, and used in an empty folder.
outside: wheel
	@for python in $(PYTHONS); do $$python tools/outside.py dist/collbench-* || exit; done

lint: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

types: $(VENV)/.dev
	$(RUN)/mypy

# Three workers for two cores: there is always one that waits for a child.
unit: $(VENV)/.dev
	$(RUN)/pytest -n 3 --dist worksteal -m "not full and not machine and not deploy" $(ARGS)

# What `make test` leaves out: whole matrices, races, memory model, browser, documentation, wheels; then, one at a time,
# the tests that depend on this machine's scheduler.
test-all: $(VENV)/.dev compiler
	$(RUN)/pytest -n 3 --dist worksteal -m full $(ARGS)
	$(RUN)/pytest -m "machine and not full" $(ARGS)

# The files in deploy/: built, held against the schemas and linters of others, and carried out where no cluster is needed.
# Takes two minutes; promtool, which no wheel has, is Debian's `prometheus`.
test-deploy: $(VENV)/.deploy compiler
	$(RUN)/pytest -n 2 --dist loadfile -m deploy tests/deploy $(ARGS)

# Faults, each on a command of its own: signals, kills, full disks, closed streams.  Takes five minutes.
faults: $(VENV)/.dev compiler
	$(RUN)/python -m tools.faults $(ARGS)

# Ten thousand broken logs: every importer answers with rows or one line of reason.  Takes minutes.
fuzz: $(VENV)/.dev
	$(RUN)/python -m tools.fuzz

# Some hundred faults of kernels and implementations, each tried by the real command on a copy.  Takes minutes.
mutants: $(VENV)/.dev compiler
	$(RUN)/python -m tools.mutants $(ARGS)

# Twenty sweeps of one code under two names on a busy machine: whoever tells them apart errs.  Takes five minutes.
noisy: $(VENV)/.dev compiler
	$(RUN)/python -m tools.noisy $(ARGS)

bench: $(VENV)/.dev compiler
	$(RUN)/python tools/bench.py

# Measures the committed CPU runs anew, rewrites the lessons and says which constants follow; a quarter of an hour, on a quiet
# machine.
# MPI=mpich,openmpi,FOLDER names the libraries to compare (docs/measuring.md).
results: $(VENV)/.dev compiler
	$(CHECKOUT) $(RUN)/python -m tools.remeasure --mpi $(or $(MPI),mpich)

# Draws docs/gallery from the committed runs, and writes its page; measures nothing.  Takes a minute.
gallery: $(VENV)/.dev
	$(CHECKOUT) $(RUN)/python -m tools.gallery

# Fits the model's constants, leaves every machine out once, writes the tables of docs/model.md and, of diagnoses, of
# docs/analysis.md.  Takes minutes.
model-report: $(VENV)/.dev
	$(RUN)/python -m tools.model.report
	$(RUN)/python -m tools.confusion

# Fits the planner's constants, leaves published tables out, writes the tables of docs/training.md.  Takes minutes.
train-report: $(VENV)/.dev
	$(CHECKOUT) $(RUN)/python -m tools.training.report

# On a machine with a GPU these use whatever python has CuPy there, from the plain checkout.
test-gpu: cupy
	@$(CHECKOUT) $(GPU_PYTHON) -m tools.gpu.campaign --stage tests,sweeps --budget 7200

bench-gpu: cupy
	@$(CHECKOUT) $(GPU_PYTHON) -m tools.gpu.bench
	@$(CHECKOUT) $(GPU_PYTHON) -m tools.gpu.nccl_arrangements || [ $$? -eq 77 ]
	@$(CHECKOUT) $(GPU_PYTHON) -m tools.gpu.measure

# All that a lent GPU is to show, in order of value, in twelve minutes (BUDGET=720 seconds).  The same command
# again does what is left.  STAGE=name[,name] (what tools.gpu.stages lists), LIMIT=seconds for any stage, CAMPAIGN=FOLDER
# for the results, OUT=FOLDER for archives of them (CONTRIBUTING.md).
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

# Two CuPys side by side break each other, and a change of driver may change which one it is.
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

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
