# Everything a developer runs. `make` alone lists it. Each target does its own set-up.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Without bytecode each worker compiles all tests, and pytest's plugins, anew: ten seconds of processor time for each.
# Each target has a cache of its own, so that `.ci/run` can run two at a time and try again what failed in one.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -o cache_dir=.cache/pytest/$@
RELEASE := .venv-release/.ready
RELEASE_BIN := .venv-release/bin
LOCK := $(BIN)/python -m piptools compile --quiet --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-header

.PHONY: help demo test test-long lanes lint e2e e2e-install doors zoo chaos upgrade crowd fuzz attack fleet fleet-net soak bench bench-short client docs man pictures web-pictures web-test site wheel packages pythons image release record take-up newest lock clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): requirements/dev.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the development environment into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(RELEASE): requirements/release.txt
	@$(PYTHON) -m venv .venv-release
	@.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	@touch $@

demo: $(READY)  ## the main job on the embedded demo backend, in about 10 s, in a scratch directory
	@$(BIN)/clisup demo

test: $(READY) lint  ## linters, types, the import contract and the tests (2 minutes on 2 cores)
	$(PYTEST) -m "not e2e and not long"

test-long: $(READY)  ## the tests with whole daemons: kills, restarts, full disks, every command of the docs (24 minutes on 2 cores; LEAVE="tests/doors tests/web")
	$(PYTEST) $(LEAVE:%=--ignore=%) -m "long and not e2e"

lanes:  ## list what .ci/run runs (.ci/run LANE runs one)
	@.ci/run --list

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy docs/examples/*.py
	$(BIN)/python -m tests.docstrings

e2e-install: $(READY)  ## fetch the pinned real CLIs into .e2e (npm)
	@for cli in tests/e2e/clis/*/; do sh tests/e2e/install_cli.sh $$(basename $$cli) || exit 1; done

e2e: e2e-install  ## drive the real CLIs against loopback fakes of their APIs
	CLISUP_E2E=1 $(PYTEST) tests/e2e -m e2e -p no:randomly

.e2e/litellm/.ready: requirements/litellm.txt
	@$(PYTHON) -m venv .e2e/litellm
	@.e2e/litellm/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/litellm.txt
	@touch $@

doors: $(READY) .e2e/litellm/.ready  ## drive the doors by clients of others: the official ones for Python and TypeScript, acpx (npm), LiteLLM
	@sh tests/e2e/install_cli.sh doors-acp tests/doors/acp/npm
	CLISUP_CI=1 $(PYTEST) tests/doors -m "long or e2e"

zoo: $(READY)  ## kill survivors of twelve kinds by the thousand, pause the daemon 200 times (KILLS=5000 for more; CLI=codex)
	$(BIN)/python -m tests.zoo.run

chaos: $(READY)  ## kill -9 the daemon 200 times, at every failpoint and at random; compare all event logs (KILLS=10000 for more; CLI=codex)
	$(BIN)/python -m tests.chaos.run

upgrade: $(READY)  ## begin turns with older code, kill its daemon, go on with this code; compare all events (FROM=v0.1.0)
	$(BIN)/python -m tests.upgrade.run

crowd: $(READY)  ## a well-behaved client beside slow, broken and greedy ones, a thousand at once (SECONDS=20 a scene)
	$(BIN)/python -m tests.crowd.run

fleet: $(READY)  ## three nodes and three boxes: kill agents, nodes, daemons and boxes 200 times, 1,000 jobs; compare the copies (KILLS=60 SECONDS=60 JOBS=300)
	$(BIN)/python -m tests.fleet_chaos.run

fleet-net: $(READY)  ## the same boxes in networks of their own, which are cut (CUTS=10); needs ip, unshare and the right to use them
	$(BIN)/python -m tests.fleet_chaos.run_net

fuzz: $(READY)  ## a million hostile inputs for every reader of bytes (INPUTS=20000 SEED=7 for fewer)
	$(BIN)/python -m tests.fuzz.run

attack: $(READY)  ## attackers of security.md: a tool, a page, a CLI, a provider, an agent, a stolen key, another user (ONLY=tool SHORT=1 SEED=7)
	$(BIN)/python -m tests.attack.run

soak: $(READY)  ## 10,000 short turns on one daemon; what they leave behind (TURNS=1000 for fewer)
	$(BIN)/python -m tests.soak.run

bench: $(READY)  ## what it costs beside references, in 15 minutes and more (NAMES="latency start", RECORD=1, BLEMEES=DIRECTORY; docs/proofs/performance.md)
	$(BIN)/python -m tests.bench.run $(NAMES) $(if $(RECORD),--record)

bench-short: $(READY)  ## two minutes of it; fails where a ratio is three times worse than recorded, or a count has grown by a tenth
	$(BIN)/python -m tests.bench.run --short

client: $(READY)  ## generate the blocking client from the trio client
	$(BIN)/python tests/client/make_blocking.py

docs: client  ## make the tables, diagrams and schemas of docs/ anew from the code
	$(BIN)/python -m tests.docs.generate
	CLISUP_UPDATE_EXPECTED=1 $(BIN)/python -m pytest -n0 tests/wire/test_openrpc.py tests/config/test_config_keys.py tests/backends/test_tables.py

man: $(READY)  ## write the manual pages in man/ anew, from the command tree
	$(BIN)/clisup man --directory man

pictures: $(READY)  ## draw docs/images anew: real terminals over a real daemon with the demo backend
	@$(BIN)/python -m tests.pictures.top
	@$(BIN)/python -m tests.pictures.screens
	@$(BIN)/python -m tests.pictures.movie

web-pictures: $(READY)  ## the pages of clisup web in docs/images anew (needs chromium)
	@$(BIN)/python -m tests.pictures.web

.cache/axe/package/axe.min.js:
	@mkdir -p .cache/axe && cd .cache/axe && npm pack --silent axe-core@4.14.1 && tar xzf axe-core-4.14.1.tgz

web-test: $(READY) .cache/axe/package/axe.min.js  ## clisup web with a real daemon, in chromium too if it is installed (1 minute)
	AXE_JS=$(CURDIR)/.cache/axe/package/axe.min.js $(PYTEST) -m "" --dist load tests/web

record: e2e-install  ## record the real CLI's output anew, as golden files
	$(BIN)/python -m tests.e2e.record_claude
	$(BIN)/python -m tests.backends.known_fields

take-up: $(READY)  ## install a new version of a real CLI, record it, print what is new (CLI=claude VERSION=2.1.331 OLDEST=1)
	$(BIN)/python -m tests.e2e.take_up $(CLI) $(VERSION) $(if $(OLDEST),--oldest)

newest: e2e-install  ## try the newest version of every CLI in npm, one line each; changes nothing (CLI=claude for one)
	$(BIN)/python -m tests.e2e.take_up $(CLI) --newest

site: $(RELEASE) packaging/site/node_modules  ## the documentation as a site in .site; warnings are errors, links are checked
	env NO_MKDOCS_2_WARNING=1 $(RELEASE_BIN)/mkdocs build
	@echo "open .site/index.html"

packaging/site/node_modules: packaging/site/package-lock.json
	cd packaging/site && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && touch node_modules

wheel: $(READY)
	packaging/build.sh

packages: wheel $(RELEASE)  ## wheel, sdist and Debian package in dist/, each installed and tried
	packaging/try.sh
	packaging/deb.sh
	packaging/try_deb.sh

pythons: wheel  ## the wheel under Python 3.11 to 3.14, with the tests of the pure rules (TESTS="tests/llm" for others)
	packaging/pythons.sh

image: wheel  ## the OCI image, where podman, docker or buildah works
	packaging/image.sh

release: packages image site  ## all packages with SBOM, hashes and the CHANGELOG's section, in dist/; nothing is uploaded
	packaging/release.sh

lock: $(READY)  ## pin the dependencies anew (needs pip-tools)
	$(LOCK) --allow-unsafe --output-file requirements/dev.txt pyproject.toml requirements/dev.in
	$(LOCK) --output-file requirements/runtime.txt pyproject.toml
	$(LOCK) --allow-unsafe --output-file requirements/release.txt requirements/release.in
	$(LOCK) --output-file requirements/litellm.txt requirements/litellm.in

clean:  ## remove what the targets made
	rm -rf $(VENV) .venv-release .site packaging/site/node_modules .cache .e2e .demo .fuzz .bench build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
