# Every target sets up what it needs: a virtual environment in .venv, with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BROWSER := .venv/.browser
PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: demo quick test test-extras docs lint hooks bench speed methods release clean

demo: $(READY)
	$(BIN)/gpvae demo --force

# The daily loop: everything but the browser, the real data and long trainings.
quick: $(READY)
	$(PYTEST) -m "not slow"

test: $(READY) $(BROWSER)
	$(PYTEST)

# The site, in site/. Warnings, such as a link that leads nowhere, are errors.
docs: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/mkdocs build

# What needs libraries that do not go together with those of .venv: sktime asks for an older pandas.
EXTRAS := .venv-extras
test-extras:
	$(PYTHON) -m venv $(EXTRAS)
	grep --invert-match '^pandas==' constraints.txt > $(EXTRAS)/constraints.txt
	$(EXTRAS)/bin/pip install --quiet --constraint $(EXTRAS)/constraints.txt pytest pytest-xdist --editable '.[sktime]'
	$(EXTRAS)/bin/pytest tests/adapters

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

hooks: $(READY)
	$(BIN)/pre-commit install

bench: $(READY)
	$(BIN)/python benchmarks/long_series.py
	$(BIN)/python benchmarks/tables.py

# Installs PyPOTS and measures both; DEVICE=cuda on a GPU.
DEVICE ?= cpu
speed: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/speed.py --device $(DEVICE)
	$(BIN)/python benchmarks/lengths.py --device $(DEVICE)
	$(BIN)/python benchmarks/lengths.py --plot
	$(BIN)/python benchmarks/brits.py --device $(DEVICE)

# Every method on PhysioNet, read from the folder that GPVAE_DATA names. PyPOTS's BRITS takes most of the time.
methods: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/comparisons.py --device $(DEVICE)

# Builds dist/, checks it, and prints what to do next (CONTRIBUTING.md, "Releases").
release: $(READY)
	$(BIN)/python scripts/release.py

clean:
	rm -rf .venv .venv-extras demo dist site

# Reports are tested in Chromium. Where there is none and it cannot be installed, those tests are skipped and say so.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -n)
$(BROWSER): $(READY)
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null \
		|| { command -v apt-get >/dev/null && $(SUDO) apt-get update -qq \
			&& $(SUDO) apt-get install -qq -y --no-install-recommends chromium >/dev/null; } \
		|| echo "Chromium is missing and cannot be installed: the browser tests are skipped"
	@touch $(BROWSER)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)
