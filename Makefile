# Everything the course needs, from a machine with Python 3.11 or newer and make. `make` alone lists the commands.

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$name; exit; }; done; echo python3)
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --quiet --disable-pip-version-check --no-input
INSTALLED := $(VENV)/.installed
PACKAGE := $(VENV)/.package
PEERS := _build/peers
WORKERS ?= auto

# A reader's own settings must not reach the kernels: outputs are compared character by character.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP MPLBACKEND
export PYTHONNOUSERSITE := 1
export JUPYTER_PREFER_ENV_PATH := 1
export PIP_PROGRESS_BAR := off

.PHONY: help book test lab edit notebooks repository lock bench peers clean site
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: site ## make the environment, build the site, say where to open it
	@echo "The site is built. Open $(CURDIR)/_build/html/index.html"

test: $(PACKAGE) ## make the environment, build the site, run every test (ARGS="-k words" chooses)
	@echo "==> Looking for a Chromium"
	@$(RUN) tools/chromium.py
	@$(MAKE) --no-print-directory site
	@echo "==> Running the tests"
	@export IPYTHONDIR="$(CURDIR)/_build/ipython" JUPYTER_CONFIG_DIR="$(CURDIR)/_build/jupyter"; \
	CHROMIUM="$$($(RUN) tools/chromium.py --path)" \
	$(RUN) -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadscope $(ARGS)

lab: $(PACKAGE) ## open the chapters in JupyterLab (ARGS=--allow-root as root)
	@$(RUN) -m jupyter lab --notebook-dir=book $(ARGS)

edit: $(PACKAGE) ## write a chapter as text, book/NAME.edit.md (NB=name)
	@$(RUN) tools/notebooks.py edit $(NB)

notebooks: $(PACKAGE) ## turn edited texts back into notebooks and run them (NB=name or NB=all runs again)
	@$(RUN) tools/notebooks.py $(if $(NB),run $(NB),apply)

repository: $(PACKAGE) ## set the repository's address everywhere it is needed (URL=https://...)
	@$(RUN) tools/repository.py "$(URL)"

lock: $(INSTALLED) ## pin the environment again from pyproject.toml
	@$(RUN) tools/lock.py

bench: $(PACKAGE) ## time the exact laws, the sampled rounds and the page's rounds, next to their targets
	@$(RUN) tools/bench.py

# The settings of OpenBLAS would give NumPy other kernels than a reader has.
peers: $(PEERS)/.package ## run other engines on the same weights, check and time them (installs PyTorch, ARGS="--repeats 9")
	@echo "==> Checking that all engines write the same"
	@$(PEERS)/bin/python -m pytest -q -o addopts=--import-mode=importlib tests/peers
	@echo "==> Timing them on one thread"
	@env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(PEERS)/bin/python -m tests.peers $(ARGS)

clean: ## remove the environment, the site and the caches
	rm -rf $(VENV) _build build *.egg-info .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

site: $(PACKAGE)
	@echo "==> Building the site"
	@rm -rf _build/html _build/.doctrees
	@$(VENV)/bin/jupyter-book build -q -W -n --keep-going --all . >/dev/null

$(INSTALLED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "specnotes needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make environments: install its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@echo "==> Making the environment in $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@echo "==> Installing $$(grep -c '^[a-z0-9]' requirements.lock) pinned packages (a few minutes the first time)"
	@$(PIP) install --require-hashes -r requirements.lock
	@touch $@

# Matplotlib writes its font list once, and says so on stderr if that happens inside a notebook.
$(PACKAGE): $(INSTALLED) pyproject.toml
	@echo "==> Installing specnotes itself"
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(RUN) -c 'import matplotlib.font_manager' 2>/dev/null
	@touch $@

$(PEERS)/.package: pyproject.toml
	@echo "==> Making the environment of the comparison in $(PEERS)"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip --quiet --disable-pip-version-check --no-input install --editable '.[peers]'
	@touch $@
