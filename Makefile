# Needs make and Python 3.11 or newer. The first target that needs .venv builds it.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN       := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CDK       := node_modules/.installed
MINISTACK := .venv-ministack/.installed
TYPED     := $(wildcard framework handlers infra)

# The audit tool lives apart from what it audits.
AUDIT    := .venv-audit
FINDINGS := $(AUDIT)/findings.txt

OLD_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11) and "Streamfold needs Python 3.11 or newer, but \
	$(PYTHON) is %d.%d: name a newer one with make PYTHON=..." % sys.version_info[:2])

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CDK_DISABLE_CLI_TELEMETRY := 1

.PHONY: help demo test soak check synth deployed e2e bench audit clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## Count real flights on an embedded DynamoDB, exactly once
	@$(BIN)/streamfold demo $(ARGS)

test: $(INSTALLED) ## Run the tests (make test ARGS="-k lanes" runs some)
	$(BIN)/pytest -n auto --ignore=tests/docs --ignore=tests/e2e $(ARGS)

soak: $(INSTALLED) ## Simulate as many histories as there is time for (make soak ARGS="--seconds 600")
	@$(BIN)/python -m tests.simulation.soak $(ARGS)

check: $(INSTALLED) ## Check style, types, architecture and every example in the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest tests/docs

synth: $(INSTALLED) $(CDK) ## Make the CloudFormation template in cdk.out/, without credentials
	@node_modules/.bin/cdk synth --quiet $(ARGS)

deployed: $(INSTALLED) ## After a deployment: remember in deployed-indexes.json which indexes the tables have
	@$(BIN)/python -m infra.indexes

e2e: $(INSTALLED) $(CDK) $(MINISTACK) ## Deploy with the real CDK to an emulator and run that; count over HTTP while faults happen
	$(BIN)/pytest -s tests/e2e $(ARGS)

bench: $(INSTALLED) ## Measure speed and write cost beside the alternatives
	$(BIN)/python -m benchmarks $(ARGS)
	$(BIN)/python -m benchmarks.bundle_start

audit: $(AUDIT)/bin/pip-audit ## Look the pinned versions up among known vulnerabilities
	@rm -f $(FINDINGS)
	@$(AUDIT)/bin/pip-audit --no-deps --disable-pip --progress-spinner off \
	  -r constraints.txt -f columns -o $(FINDINGS) || { cat $(FINDINGS) 2>/dev/null; exit 1; }
	@touch $(FINDINGS)
	@echo "$$(grep -c 'could not be audited' $(FINDINGS)) of $$(grep -c == constraints.txt) versions are unknown to the service"

clean: ## Remove caches and build output; .venv stays
	rm -rf build dist cdk.out *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name '.venv*' -prune -o -type d -name __pycache__ -exec rm -rf {} +

# A stamp, so that a changed dependency renews the environment and nothing else does.
$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Streamfold needs Python 3.11 or newer, but there is no $(PYTHON)" >&2; exit 1; }
	@$(PYTHON) -c '$(OLD_ENOUGH)'
	@echo "Setting up $(VENV), once: this takes two to three minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# With the wheels of the functions' bundle, so that a synth needs no network.
$(CDK): package.json package-lock.json constraints.txt | $(INSTALLED)
	@command -v npm >/dev/null || { echo "The CDK's command needs Node.js 20 or newer with npm, but there is no npm" >&2; exit 1; }
	@npm ci --silent --no-audit --no-fund
	@$(BIN)/python -m infra.wheels
	@touch $@

# The emulators and the fault proxy: one pins another botocore than ours.
$(MINISTACK): tests/e2e/ministack-requirements.txt
	@$(PYTHON) -m venv .venv-ministack
	@.venv-ministack/bin/python -m pip install --quiet --no-deps -r tests/e2e/ministack-requirements.txt
	@touch $@

$(AUDIT)/bin/pip-audit:
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet pip-audit
