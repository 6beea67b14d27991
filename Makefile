# make demo: everything on this machine, no root. make test: all checks. Both set up .venv first, once.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: demo lock setup test test-fast lint clean

# Which Python makes .venv: `make PYTHON=/path/to/python3.12`; else the first of these that is 3.11 or newer.
PYTHON ?=
CANDIDATES := $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

export PATH := $(CURDIR)/$(BIN):$(PATH)

setup: $(READY)

$(READY): pyproject.toml
	@usable() { command -v "$$1" >/dev/null && "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
	python=""
	for candidate in $(CANDIDATES); do
	    if usable "$$candidate"; then python="$$candidate"; break; fi
	done
	if [ -z "$$python" ]; then
	    echo "Python 3.11 or newer is needed (Debian, Ubuntu: apt-get install python3 python3-venv)" >&2
	    exit 1
	fi
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then
	    echo "$$python has no venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2
	    exit 1
	fi
	[ -x $(BIN)/python ] || "$$python" -m venv .venv
	echo "Setting up .venv with $$($(BIN)/python --version); PyTorch makes this take minutes the first time."
	$(PIP) torch==2.13.0
	echo "PyTorch is there. Now what the payload and the tests need, and orch itself."
	$(PIP) --editable '.[payload,dev]'
	# What builds environments on the targets; the tests, which need no network, send it into their labs.
	$(BIN)/python -m tests.uv_wheel >/dev/null
	touch $@

# The lab goes down however this ends. The last line is what the training came to.
demo: $(READY)
	@missing=""
	command -v tmux >/dev/null || missing="$$missing tmux"
	command -v ssh >/dev/null || missing="$$missing openssh-client"
	if [ -n "$$missing" ]; then
	    echo "missing (Debian, Ubuntu: apt-get install$$missing)" >&2
	    exit 1
	fi
	up=$$(orch lab up --embedded 2> >(grep -v '^next:' >&2))
	lab=$$(sed -n 's/^lab \([0-9a-f]*\) .*/\1/p' <<<"$$up")
	trap 'orch lab down --lab "$$lab" >/dev/null' EXIT
	echo "$$up"
	in_lab() { echo; echo "+ $$*"; orch lab shell --lab "$$lab" -- "$$@"; }
	folder="$(CURDIR)/pulled/demo-$$lab"
	in_lab orch deploy
	in_lab orch launch --wait end
	in_lab orch status
	in_lab orch pull --to "$$folder"
	echo
	grep -rhoE --include=run.log 'acceptance length: [0-9]+\.[0-9]{2}' "$$folder" | tail -n 1

# One of the payload's locks anew, for Linux on x86-64: make lock VARIANT=cu128 INDEX=https://download.pytorch.org/whl/cu128
VARIANT ?= cu130
PYTHON_VERSION ?= 3.12
INDEX ?=
LOCK := remote_payload/locks/train-$(VARIANT)

lock: $(READY)
	@command -v uv >/dev/null || $(PIP) uv
	uv pip compile --quiet --generate-hashes --no-annotate --upgrade \
	    --custom-compile-command 'make lock VARIANT=$(VARIANT) PYTHON_VERSION=$(PYTHON_VERSION)$(if $(INDEX), INDEX=$(INDEX))' \
	    --python-version $(PYTHON_VERSION) --python-platform x86_64-manylinux_2_28 \
	    $(if $(INDEX),--extra-index-url $(INDEX) --index-strategy unsafe-best-match) \
	    --output-file $(LOCK).txt $(LOCK).in

lint: $(READY)
	@ruff format --check .
	ruff check .
	mypy
	MYPYPATH=remote_payload mypy --explicit-package-bases remote_payload

FAST := tests/test_architecture.py tests/unit tests/contract tests/fuzz
SLOW := $(wildcard tests/payload tests/lab)
REAL_LAB := from orchestrator.lab.real import why_not; why = why_not(); \
    print("NOT RUN: the tests on the real lab (LXC, sshd): " + why if why else "The tests on the real lab were run, too.")

test-fast: $(READY)
	@python -m pytest -q -n auto $(FAST)

# Mostly waiting, so more processes than cores; each makes labs of its own, and a file's tests stay together.
test: lint test-fast
	@python -m pytest -q -n 3 --dist loadfile $(SLOW)
	python -c '$(REAL_LAB)'

clean:
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
