# Every target installs what it needs, and no more, into .venv; the machine needs only python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
#: Fairlead as a user has it, and with the tools of tests and checks.
RUN    := $(VENV)/.installed-to-run
STAMP  := $(VENV)/.installed
#: The tests whose coverage of translate, sync and ledger counts.
COVERED_BY := tests/unit/translate tests/unit/sync tests/unit/ledger tests/golden/translate tests/scenario/difftracker \
	tests/scenario/records

# Tests start hundreds of processes: what Python has compiled is kept, also where the environment asks for the contrary.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-global demo-rollout demo-machines test test-e2e test-all-pythons check check-tests conformance conformance-mcs bench crds docs site screenshots golden fuzz soak crashes simulate simulate-known simulate-layer2 coverage coverage-of-requirements mutants \
	format hooks lock install helm image test-image test-wheel test-acme test-external-dns test-coredns test-cluster-api release wheels clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-26s %s\n", $$1, $$2}'

# What a lock file lists is installed with the versions and hashes that it lists, the same on every machine.
PIP = $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off

#: One repository, three distributions: fairlead, and what its extra standalone installs.
DISTRIBUTIONS := . src/podless src/fairlead_demo

$(RUN): $(addsuffix /pyproject.toml,$(DISTRIBUTIONS)) src/fairlead/__init__.py requirements/run.lock
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing Fairlead into $(VENV): about 50 packages, a minute ..."
	@$(PIP) --require-hashes -r requirements/run.lock
	@$(PIP) --no-deps --no-build-isolation $(addprefix -e ,$(DISTRIBUTIONS))
	@touch $@

$(STAMP): $(RUN) requirements/dev.lock
	@echo "Installing the tools of tests and checks into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements/dev.lock
	@touch $@

install: $(RUN) ## Install Fairlead into .venv

demo: $(RUN) ## Two member clusters, one hub, real Envoy, real traffic
	@$(BIN)/fairlead demo

demo-global: $(RUN) ## One Service of three members: shares, a partition, failover in order, a killed member, a shift of weights
	@$(BIN)/fairlead demo global

demo-rollout: $(RUN) ## Rollouts of ten versions under load, with pod readiness gates and without
	@$(BIN)/fairlead demo rollout

demo-machines: $(RUN) ## Three proxy machines that fail under load, in network namespaces, with a table of gaps (needs root)
	@$(BIN)/fairlead demo machines

#: Tests that run other programs: hubs, agents, proxies, DNS servers, a browser, and what documents say to type.
WHOLE := tests/e2e tests/scenario/announce tests/scenario/deployment tests/scenario/doctor tests/scenario/machines tests/scenario/page tests/scenario/zones tests/xds \
	tests/contract/providers tests/docs/test_docs_commands.py tests/simulate/test_simulate.py tests/unit/cli/test_cli_exit_codes.py tests/unit/cli/test_cli_status_watch.py \
	tests/scenario/agent/test_right_cluster.py

test: $(STAMP) ## Run the tests, all but those of test-e2e; ARGS="-k guard" for some
	@.ci/dns
	@.ci/bgp
	@.ci/nftables
	@$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) $(addprefix --ignore ,$(WHOLE)) $(ARGS)

# These wait for processes more than they compute.
test-e2e: $(STAMP) ## Run hubs, agents, proxies, DNS servers and demos as processes, under traffic and with faults
	@.ci/haproxy
	@.ci/dns
	@.ci/bgp
	@.ci/nftables
	@.ci/chromium
	@$(BIN)/python -m pytest $(WHOLE) $(ARGS)

test-all-pythons: ## Run every test on each Python from 3.11 to 3.14 that this machine has
	@.ci/test-all-pythons $(ARGS)

coverage: $(STAMP) ## Branches that the tests of translate, sync and ledger take; fails below the floor
	@$(BIN)/coverage run -m pytest -n 0 -p no:randomly -m 'not slow' -k 'not costs_microseconds' $(COVERED_BY)
	@$(BIN)/coverage report
	@$(BIN)/python -m tests.coverage_floor

mutants: $(STAMP) ## Break translate, sync and ledger on purpose and count which tests notice (long); ONLY=<module glob>, or ONLY='--sample 300' for that many by chance
	@$(PIP) --require-hashes -r requirements/mutants.lock
	@$(BIN)/python -m tests.mutants $(ONLY)

soak: $(STAMP) ## Run the demo 50 times and the tests 5 times under load, and count failures; ARGS="demo 10" for less
ifeq ($(ARGS),)
	@$(BIN)/python -m tests.soak demo 50
	@$(BIN)/python -m tests.soak test 5
else
	@$(BIN)/python -m tests.soak $(ARGS)
endif

simulate: $(STAMP) ## Run hubs, agents and providers on virtual time with faults that seeds decide; ARGS="--seeds 10000" for more, ARGS="--seed 8" for one
	@$(BIN)/python -m tests.simulate $(ARGS)

simulate-layer2: $(STAMP) ## Run proxy machines on one link through 10,000 schedules of faults on virtual time; ARGS="--seed 8" for one
	@$(BIN)/python -m tests.simulate.layer2 $(ARGS)

simulate-known: $(STAMP) ## Put each former fault back and print within how many seeds the simulator finds it; ARGS="--prove any_404_is_gone" for one
	@$(BIN)/python -m tests.simulate $(or $(ARGS),--prove --seeds 2000)

crashes: $(STAMP) ## Kill the engine before and after every call of 250 stories, and of stories of names: 14,000 schedules; the hub at every write; ARGS="--schedules 100000" for more
	@$(BIN)/python -m pytest tests/scenario/records/test_records_simulation.py tests/scenario/records/test_records_names_simulation.py tests/scenario/core --schedules 10000 $(ARGS)
	@$(BIN)/python -m pytest tests/scenario/lbcf tests/scenario/hub/test_hub_durable_deaths.py --thorough -m thorough

check: $(STAMP) ## Format, lint, strict types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright src tools conformance bench
	@$(BIN)/lint-imports --no-cache

check-tests: $(STAMP) ## Strict types of the tests
	@$(BIN)/basedpyright tests

format: $(STAMP) ## Format the sources
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

hooks: $(STAMP) ## Check each commit before it is made (pre-commit)
	@$(BIN)/pre-commit install

#: Resolves for all Pythons and platforms at once; indexes and their addresses stay out of the files.
RESOLVE = $(BIN)/uv pip compile --quiet $(addsuffix /pyproject.toml,$(DISTRIBUTIONS)) --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --no-header --extra standalone --group build \
	--no-emit-package fairlead --no-emit-package fairlead-demo --no-emit-package podless

lock: $(STAMP) ## Write the lock files after a change of dependencies in pyproject.toml; ARGS=--upgrade takes newer ones
	@$(PIP) uv
	@$(RESOLVE) $(ARGS) -o requirements/run.lock
	@$(RESOLVE) $(ARGS) -c requirements/run.lock --group dev -o requirements/dev.lock
	@$(RESOLVE) $(ARGS) -c requirements/dev.lock --group dev --group mutants -o requirements/mutants.lock
	@$(RESOLVE) $(ARGS) -c requirements/dev.lock --group site -o requirements/site.lock

fuzz: $(STAMP) ## Feed broken input to everything that reads what others write; FUZZ_SECONDS=60, FUZZ_INPUTS=0, FUZZ_WORKERS=1, ONLY='*-answers'
	@$(BIN)/python -m tests.fuzz $(foreach name,$(ONLY),'$(name)')

conformance: $(STAMP) ## Run the official conformance suite of Gateway API (needs root and Go); ONLY=<test>, KEEP=1, NS=, D=
	@$(BIN)/python -m conformance

conformance-mcs: $(STAMP) ## Run the official conformance suite of the Multi-Cluster Services API (needs root and Go); MEMBERS=2, KEEP=1, NS=, D=
	@$(BIN)/python -m conformance.mcs

#: Charts are rendered and linted with this version.
HELM_VERSION := v3.22.0

helm: $(RUN) ## Build Helm into .venv for the tests of the charts (needs Go; minutes)
	@GOBIN=$(abspath $(BIN)) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

#: What builds images here.
IMAGE_TOOL ?= $(firstword $(notdir $(shell command -v docker podman buildah)))

image: ## Build the container image fairlead:VERSION with docker, podman or buildah; ARGS=--build-arg=BASE=... for another base
	@test -n "$(IMAGE_TOOL)" || { echo "Nothing here builds images: install docker, podman or buildah"; exit 1; }
	@version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/fairlead/__init__.py) && \
	$(IMAGE_TOOL) build $(ARGS) --build-arg VERSION=$$version --tag fairlead:$$version --file deploy/image/Dockerfile .

test-image: $(STAMP) ## Build the image with buildah from this Debian's packages, and run the demo in it (root; minutes)
	@FAIRLEAD_TEST_IMAGE=1 $(BIN)/python -m pytest -n 0 tests/scenario/deployment/test_deployment_image.py

test-wheel: $(STAMP) ## Install the wheel with pip on each Python that is here, and with pipx, and run the demo (asks an index; minutes)
	@FAIRLEAD_TEST_WHEEL=1 $(BIN)/python -m pytest -n 0 tests/e2e/test_e2e_wheel.py

test-acme: $(STAMP) ## Build Pebble, a real ACME server, and cert-manager with Go, and run the tests of certificates with both (minutes)
	@$(BIN)/python -m conformance.pebble
	@$(BIN)/python -m conformance.certmanager
	@$(BIN)/python -m pytest -n 0 tests/contract/acme tests/contract/cert_manager tests/e2e/test_e2e_pebble.py tests/e2e/test_e2e_cert_manager.py

test-external-dns: $(STAMP) ## Build external-dns with Go, and run the tests of what it reads from the hub and writes at a real BIND (minutes)
	@$(BIN)/python -m conformance.externaldns
	@$(BIN)/python -m pytest -n 0 tests/contract/external_dns

test-coredns: $(STAMP) ## Build CoreDNS and its plugin multicluster with Go, and ask it for the names of ServiceImports (minutes)
	@$(BIN)/python -m conformance.coredns
	@$(BIN)/python -m pytest -n 0 tests/scenario/multicluster/test_multicluster_dns.py

wheels: $(RUN) ## Build the wheels of the three distributions into dist/, with man pages
	@$(BIN)/python -m tools.man
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist $(addprefix ./,$(DISTRIBUTIONS))

release: $(RUN) ## Write the files of this release into dist/: charts, plugin, clusterctl, air-gap list, bill of materials; ARGS=--image=...@sha256:...
	@$(BIN)/python -m tools.release dist $(ARGS)

test-cluster-api: $(STAMP) ## Build Cluster API's controllers and run a cluster of theirs behind a load balancer (root, Go; long the first time)
	@$(BIN)/python -m conformance.clusterapi

bench: $(STAMP) ## Print the performance figures next to their limits
	@.ci/haproxy
	@.ci/dns
	@.ci/bgp
	@.ci/nftables
	@.ci/chromium
	@$(BIN)/python -m bench

crds: $(RUN) ## Print all CustomResourceDefinitions as YAML
	@$(BIN)/fairlead crds

docs: $(STAMP) ## Rewrite docs/reference, and the charts' copies of manifests and alerts
	@$(BIN)/python -m tools.generate

site: $(RUN) ## Build the documentation as pages for a browser into site/, searchable and without requests to other servers
	@$(PIP) --require-hashes -r requirements/site.lock
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html is the first page; to look at it with search: $(BIN)/python -m http.server --directory site"

screenshots: $(STAMP) ## Take the pictures of the page for the README (needs Chromium)
	@.ci/chromium
	@$(BIN)/python -m tools.screenshots

golden: $(STAMP) ## Rewrite the golden files after an intended change of behaviour
	@$(BIN)/python -m pytest tests/golden --rewrite-golden

coverage-of-requirements: $(STAMP) ## Print every requirement ID with the tests that prove it
	@$(BIN)/python -m tests.requirements

clean: ## Remove everything that make has installed or built
	@rm -rf $(VENV) .venv-3.* .pytest_cache .ruff_cache .coverage build mutants dist site
