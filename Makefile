# Every target installs what it needs, and no more, into .venv; the machine needs only python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
#: Fairlead as a user has it, and with the tools of tests and checks.
RUN    := $(VENV)/.installed-to-run
STAMP  := $(VENV)/.installed

.PHONY: help demo test check bench crds docs golden coverage-of-requirements format install clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-26s %s\n", $$1, $$2}'

$(RUN): pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing Fairlead into $(VENV) (first run: about half a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[standalone]'
	@touch $@

$(STAMP): $(RUN)
	@echo "Installing the tools of tests and checks into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

install: $(RUN) ## Install Fairlead into .venv

demo: $(RUN) ## Two member clusters, one hub, real Envoy, real traffic: under two minutes
	@$(BIN)/fairlead demo

test: $(STAMP) ## Run every test
	@$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## Format, lint, strict types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Rewrite the sources in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP) ## Print the performance figures beside their limits
	@$(BIN)/python -m bench

crds: $(RUN) ## Print all CustomResourceDefinitions as YAML
	@$(BIN)/fairlead crds

docs: $(STAMP) ## Rewrite the generated reference in docs/reference
	@$(BIN)/python -m docs.generate

golden: $(STAMP) ## Rewrite the golden files after an intended change of behaviour
	@$(BIN)/python -m pytest tests/golden --rewrite-golden

coverage-of-requirements: $(STAMP) ## Print every requirement ID with the tests that prove it
	@$(BIN)/python -m tests.requirements

clean: ## Remove everything that make has installed or built
	@rm -rf $(VENV) .pytest_cache .ruff_cache .coverage dist
