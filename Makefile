# Doors to everything; each says what it does:  make help
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
# Tests wait more than they compute. Each worker has sandbox hosts of its own, and keeps to a file for what it set up.
WORKERS ?= -n $(1) --dist loadfile
BIN := .venv/bin
VENV := .venv/.controller-installed
DEV := .venv/.dev-installed

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

demo: host-packages $(VENV)  ## the whole way on a sandbox host: boot, deploy, real question, deploy again
	@$(BIN)/python -m sandbox.demo

sandbox: host-packages $(VENV)  ## boot a sandbox host (systemd, sshd, stand-in GPUs) and leave it running
	@$(PYTHON) -m sandbox up

sandbox-down:  ## stop all sandbox hosts; leaves no process, mount or network device
	@$(PYTHON) -m sandbox down

test: host-packages lint  ## lint, types, and every test but the faults (root for those on sandbox hosts)
	@$(BIN)/python -m pytest $(call WORKERS,2) tests --ignore tests/faults

faults: host-packages $(DEV)  ## what breaks in the middle: kills, power cuts, dying servers
	@$(BIN)/python -m pytest $(call WORKERS,3) tests/faults

lint: $(DEV)  ## ruff and mypy --strict
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: host-packages $(DEV)  ## measure; NAME=x for one of bench/
	@$(BIN)/python -m bench $(NAME)

lock: $(DEV)  ## compile every lock again and show what changed
	@$(BIN)/python requirements/lock.py

manifest: $(VENV)  ## REPO=owner/name REV=commit or branch: sizes and hashes as the hub says, into group_data/checkpoints/
	@$(BIN)/python -m tasks.manifest $(if $(NAME),--name=$(NAME)) $(if $(REPO),--repo=$(REPO)) $(if $(REV),--rev=$(REV)) \
		$(if $(FOLDER),--folder=$(FOLDER)) $(if $(EXPERTS),--experts=$(EXPERTS)) $(if $(TOKEN_FILE),--token-file=$(TOKEN_FILE))

bundle: $(VENV)  ## PROFILE=x OUT=folder [CHECKPOINT=folder]: all that a host without a network needs, to be carried there
	@$(BIN)/python -m serving.air_gap $(PROFILE) $(OUT) $(if $(CHECKPOINT),--checkpoint $(CHECKPOINT))

profile: $(VENV)  ## NAME=x: a profile whole, with what it extends and the command line of each unit
	@$(BIN)/python -m serving.show $(NAME)

readme: $(VENV)  ## make the table of profiles in README.md anew
	@$(BIN)/python -m serving.profile_table

host-packages:
	@$(PYTHON) -m sandbox deps --install

$(VENV): requirements/controller.lock
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "python3-venv is missing: apt-get install python3-venv"; exit 2; }
	@echo "making .venv (pyinfra and what it needs)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/controller.lock
	@touch $@

$(DEV): $(VENV) requirements/dev.lock
	@echo "adding test tools to .venv"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

.PHONY: help demo sandbox sandbox-down test faults lint bench lock manifest bundle profile readme host-packages
