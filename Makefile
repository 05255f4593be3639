# `make` or `make help` lists what there is. Everything runs in .venv, which is made on first use.

# The first interpreter that fits; `make PYTHON=/path/to/python3.12 test` names another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
		2>/dev/null && { echo "$$python"; break; }; done)

BIN := .venv/bin
INSTALLED := .venv/.installed
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# The tests start hundreds of programs, and to compile all modules takes each of them 0.1 to 0.3 seconds.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: $(INSTALLED) ## See it work: embedded Postgres, two workers, many tenants, a summary
	@$(BIN)/holdfast demo $(ARGS)

.PHONY: example
example: $(INSTALLED) ## Run one of the five systems: NAME=links, coins, harmonyk, outreach or passports
	@test -f "examples/$(NAME)/__main__.py" || { echo "error: no example is called '$(NAME)'; there are:" \
		$(patsubst examples/%/__main__.py,%,$(wildcard examples/*/__main__.py)) "(make example NAME=links)" >&2; exit 2; }
	@cd examples && HOLDFAST_DSN="$${HOLDFAST_DSN:-embedded:../.holdfast/examples/$(NAME)}" ../$(BIN)/python -m "$(NAME)" $(ARGS)

.PHONY: test
test: $(INSTALLED) ## Run the tests, four at a time, and show the slowest; ARGS="-k lease -x" goes to pytest (-n 0: one at a time)
	@$(BIN)/pytest -n 4 $(ARGS)  # on two cores: much of their time is spent waiting

.PHONY: test-fast
test-fast: $(INSTALLED) ## Run the quick tests on one server, in about a minute: the everyday loop
	@$(BIN)/pytest -n 3 --fast $(ARGS)

.PHONY: check
check: $(INSTALLED) ## Lint, formatting, types, layers, drift of schema, reference, sync modules and diagrams, the documentation's links
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/dump_schema.py --check
	$(BIN)/python tools/reference.py --check
	$(BIN)/python tools/async_to_sync.py --check
	$(BIN)/python tools/diagrams.py --check
	$(MAKE) --no-print-directory docs

.PHONY: docs
docs: $(INSTALLED) ## Build docs/ into a site, build/docs, strictly: a broken link or a foreign host fails
	@$(MKDOCS) build --strict --quiet
	@echo "build/docs/index.html"

.PHONY: docs-serve
docs-serve: $(INSTALLED) ## Show the site on http://127.0.0.1:8100/, rebuilt when a page changes
	@$(MKDOCS) serve --dev-addr 127.0.0.1:8100

.PHONY: format
format: $(INSTALLED) ## Sort imports, apply safe fixes, format
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

.PHONY: reference
reference: $(INSTALLED) ## Write docs/reference anew from the code
	$(BIN)/python tools/reference.py

.PHONY: sync
sync: $(INSTALLED) ## Generate the modules *_sync.py from *_async.py
	$(BIN)/python tools/async_to_sync.py

.PHONY: diagrams
diagrams: $(INSTALLED) ## Redraw the diagrams of docs/pictures
	$(BIN)/python tools/diagrams.py

.PHONY: screenshots
screenshots: $(INSTALLED) ## Retake the screenshots of docs/pictures; needs chromium
	$(BIN)/python tools/screenshots.py
	$(BIN)/python tools/terminal.py

.PHONY: schema
schema: $(INSTALLED) ## Rewrite the schema file from the migrations
	$(BIN)/python tools/dump_schema.py

.PHONY: bench
bench: $(INSTALLED) ## Measure five workloads in a minute; ARGS="--json" for programs; `python -m bench` has the long suites
	@$(BIN)/holdfast bench $(ARGS)

.PHONY: lock
lock: python ## Pin requirements/dev.txt; ARGS="--upgrade" for newer versions
	@lock=$$(mktemp -d) && trap 'rm -rf "$$lock"' EXIT && \
	$(PYTHON) -m venv "$$lock" && \
	"$$lock/bin/pip" install -q uv && \
	"$$lock/bin/uv" pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --custom-compile-command 'make lock' \
		--all-extras --output-file requirements/dev.txt $(ARGS) pyproject.toml requirements/dev.in && \
	echo "requirements/dev.txt: $$(grep -c '==' requirements/dev.txt) packages pinned"

.PHONY: sbom
sbom: $(INSTALLED) ## Write build/sbom.json: what Holdfast and its extras need, as locked, in CycloneDX
	@$(BIN)/python tools/sbom.py build/sbom.json

.PHONY: release-check
release-check: $(INSTALLED) ## Build sdist and wheel, check them, and run the README's program from the wheel
	@tools/release_check.sh $(BIN)/python "$(PYTHON)"

.PHONY: keep-release
keep-release: $(INSTALLED) ## Keep a tagged release's wheel for the upgrade test: TAG=v0.1.0
	@tools/keep_release.sh $(BIN)/python "$(TAG)"

.PHONY: clean
clean: ## Remove .venv, caches and build output; .holdfast, with its data, stays
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist bench/out
	find . \( -name .git -o -name .holdfast \) -prune -o -name __pycache__ -prune -exec rm -rf {} +

# An environment that still runs is brought up to date; one that does not is recreated.
$(INSTALLED): requirements/dev.txt pyproject.toml
	@$(MAKE) --no-print-directory python PYTHON="$(PYTHON)"
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		$(PYTHON) -m venv --clear .venv
	@echo "Installing into .venv: one to five minutes, once (details in .venv/install.log) ..."
	@{ $(BIN)/python -m pip install -q --require-hashes -r requirements/dev.txt && \
	   $(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .; } >.venv/install.log 2>&1 || \
		{ cat .venv/install.log >&2; echo "error: .venv is incomplete; run make again once this is fixed" >&2; exit 1; }
	@touch $@
	@echo "Ready: .venv has $$($(BIN)/python --version)"

# Says what to install when no interpreter fits.
.PHONY: python
python:
	@chosen="$(PYTHON)"; python="$${chosen:-python3}"; \
	if ! command -v "$$python" >/dev/null 2>&1; then \
		found="there is no $$python here"; \
	elif ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		found="$$python is $$("$$python" --version 2>&1)"; \
	elif ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
		version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "error: $$python cannot create virtual environments: the venv module is incomplete" >&2; \
		echo "  Debian, Ubuntu:  apt install python$$version-venv" >&2; \
		echo "  elsewhere:       install a Python that has the venv and ensurepip modules" >&2; \
		exit 1; \
	elif [ -z "$$chosen" ]; then \
		found="$$python is $$("$$python" --version 2>&1)"; \
	else \
		exit 0; \
	fi; \
	echo "error: Holdfast needs Python 3.11 to 3.14, and $$found" >&2; \
	echo "  Debian, Ubuntu:  apt install python3 python3-venv" >&2; \
	echo "  Fedora:          dnf install python3.13" >&2; \
	echo "  macOS:           brew install python@3.13" >&2; \
	echo "  installed elsewhere:  make PYTHON=/path/to/python3.13 ..." >&2; \
	exit 1
