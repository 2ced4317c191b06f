# The few verbs of this project. `make` alone lists them. Everything is installed into .venv; nothing needs root.
PYTHON ?= python3
BIN := .venv/bin
# PyTorch's index of CPU wheels (its install page names it), where pip is not set up to find them: without it the default
# build is installed, which brings several gigabytes of CUDA.
TORCH_INDEX ?=
# Each is confined to a core.
TEST_PROCESSES ?= 4
# Platforms with a sandbox image; one comes after the one that it is made on.
IMAGES := cpu riscv cuda opencl hip
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
# A host with a GPU may have torch and no way to install more.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
.PHONY: help setup cuda demo image test gpu lint serve

help:
	@echo "make setup   install into .venv (Python 3.11 or newer, g++)"
	echo "make cuda    install what compiles for GPUs, too: NVIDIA's compiler (160 MB, its licence) and Triton (200 MB)"
	echo "make demo    optimize an example op with the built-in model: no key, no server"
	echo "make test    run all tests, with Docker where its daemon answers and PostgreSQL where it is installed"
	echo "make gpu     on a host with an NVIDIA GPU: judge kernels on it, and write benchmarks/results/gpu.md"
	echo "make lint    ruff, mypy --strict and the direction of imports"
	echo "make serve   the pages and the API at http://127.0.0.1:8765, and a worker"

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt $(wildcard evaluator/referee/runner/native/*.cpp evaluator/referee/runner/native/*.py)
	@if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	    echo "setup: $(PYTHON) is missing or older than 3.11; install one and name it: make setup PYTHON=python3.12" >&2; exit 2
	fi
	if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then
	    echo "setup: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 2
	fi
	if ! command -v g++ >/dev/null; then
	    echo "setup: no g++; on Debian: apt-get install g++" >&2; exit 2
	fi
	if [ ! -x $(BIN)/python ]; then
	    echo "setup: making .venv with $$($(PYTHON) --version)"
	    $(PYTHON) -m venv .venv
	fi
	pip=($(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt)
	echo "setup: installing PyTorch for CPUs (200 MB) into .venv"
	torch=$$(sed -n 's/^torch==//p' constraints.txt)
	if ! "$${pip[@]}" $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) "torch==$$torch+cpu" 2>/dev/null; then
	    echo "setup: pip finds no CPU build of PyTorch; installing the default one (large; see TORCH_INDEX in the Makefile)"
	    "$${pip[@]}" "torch==$$torch"
	fi
	echo "setup: installing Kernelwright, its dependencies and the tools for tests into .venv"
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' > .venv/dev.txt
	"$${pip[@]}" -e '.[process]' -r .venv/dev.txt
	echo "setup: compiling torch's headers once, so that torch.compile starts quickly (20 s)"
	$(BIN)/python -m sandbox.warm evaluator/platforms/cpu/image/inductor_cache.py >/dev/null
	echo "setup: compiling the loop of timed calls (15 s)"
	$(BIN)/python evaluator/referee/runner/native/prepare.py
	touch $@
	echo "setup: done"

cuda: setup
	@$(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt -e '.[process,cuda,triton]'

demo: setup
	@$(BIN)/kernelwright optimize examples/rmsnorm_gelu.py

# Beside `make lint` in .ci/run; `make test` makes the image, too, where a daemon answers.
image: setup
	@for platform in $(IMAGES); do $(BIN)/kernelwright sandbox build --platform $$platform; done

# Docker's tests fail without a daemon, PostgreSQL's, the browser's and those that compile for GPUs without their programs;
# where there are none they are left out here, which is said, unless KERNELWRIGHT_TEST_DOCKER=1, _POSTGRES=1, _BROWSER=1 or
# _NVRTC=1 asks for them.
test: setup
	@if $(BIN)/python -c 'from sandbox.docker.engine import connect; connect()' 2>/dev/null; then
	    echo "test: Docker answers; making the sandbox images unless they are there"
	    for platform in $(IMAGES); do $(BIN)/kernelwright sandbox build --platform $$platform; done
	elif [ "$${KERNELWRIGHT_TEST_DOCKER:-}" != 1 ]; then
	    echo "test: no Docker daemon answers, so its tests are left out (kernelwright doctor says what to do)"
	    export KERNELWRIGHT_TEST_DOCKER=0
	fi
	if [ "$${KERNELWRIGHT_TEST_POSTGRES:-}" != 1 ] && [ -z "$${KERNELWRIGHT_TEST_POSTGRES_URL:-}" ] &&
	    ! $(BIN)/python -c 'import sys; from tests.support.postgres import find_programs; sys.exit(find_programs() is None)'; then
	    echo "test: PostgreSQL is not installed, so its tests are left out; on Debian: apt-get install postgresql"
	    export KERNELWRIGHT_TEST_POSTGRES=0
	fi
	if [ "$${KERNELWRIGHT_TEST_BROWSER:-}" != 1 ] && ! command -v chromium >/dev/null; then
	    echo "test: Chromium is not installed, so the pages' tests in a browser are left out; on Debian: apt-get install chromium"
	    export KERNELWRIGHT_TEST_BROWSER=0
	fi
	if [ "$${KERNELWRIGHT_TEST_NVRTC:-}" != 1 ] &&
	    ! $(BIN)/python -c 'import sys; from evaluator.referee.protocol.gpu_checks import toolkit; sys.exit(toolkit() is None)'; then
	    echo "test: NVIDIA's compiler is not installed, so the tests that compile for GPUs are left out; to install it: make cuda"
	    export KERNELWRIGHT_TEST_NVRTC=0
	fi
	if [ "$${KERNELWRIGHT_TEST_TRITON:-}" != 1 ] &&
	    ! $(BIN)/python -c 'import sys; from evaluator.referee.protocol.gpu_checks import triton_package; sys.exit(triton_package() is None)'; then
	    echo "test: Triton is not installed, so the tests of platform triton are left out; to install it: make cuda"
	    export KERNELWRIGHT_TEST_TRITON=0
	fi
	unset PYTHONDONTWRITEBYTECODE  # else each of a thousand processes compiles the same files again
	echo "test: the tests that may run side by side, then those that measure time"
	rm -rf .pytest_cache/v .pytest_cache/failed  # and not the packages that tests have downloaded to .pytest_cache/d
	if ! $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup -m "not exclusive"; then
	    $(BIN)/python -m tests.support.failed_tests .pytest_cache/failed || exit 1
	    echo "test: these failed beside other tests and are asked again alone, for they may have lacked time:"
	    cat .pytest_cache/failed
	    $(BIN)/python -m pytest @.pytest_cache/failed
	fi
	$(BIN)/python -m pytest -m exclusive $$(grep -rl --include='test_*.py' 'pytest.mark.exclusive' tests)

# Torch with CUDA, numpy and the standard library are enough; the marked tests say the same once more where pytest is.
gpu:
	@$(GPU_PYTHON) -m benchmarks.gpu $(GPU_ARGS) && passed=0 || passed=$$?
	if [ $$passed -ne 3 ] && $(GPU_PYTHON) -c 'import pytest, sqlalchemy, docker' 2>/dev/null; then
	    KERNELWRIGHT_TEST_GPU=1 $(GPU_PYTHON) -m pytest -m gpu tests/platforms/gpu || passed=1
	fi
	exit $$passed

lint: setup
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

serve: setup
	@$(BIN)/kernelwright serve
