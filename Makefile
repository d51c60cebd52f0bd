# Everything sets itself up: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BROWSER := .venv/.browser

.PHONY: demo test lint bench speed methods clean

demo: $(READY)
	$(BIN)/gpvae demo --force

test: $(READY) $(BROWSER)
	$(BIN)/pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(READY)
	$(BIN)/python benchmarks/long_series.py
	$(BIN)/python benchmarks/tables.py

# Beside PyPOTS, which is installed for it; DEVICE=cuda on a GPU.
DEVICE ?= cpu
speed: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/speed.py --device $(DEVICE)
	$(BIN)/python benchmarks/lengths.py --device $(DEVICE)
	$(BIN)/python benchmarks/lengths.py --plot
	$(BIN)/python benchmarks/brits.py --device $(DEVICE)

# Every method on PhysioNet, from the folder that GPVAE_DATA names. Most of the time goes to PyPOTS's BRITS.
methods: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/comparisons.py --device $(DEVICE)

clean:
	rm -rf .venv demo dist

# Reports are tested in Chromium. Where it is not there and cannot be installed, those tests are skipped, and say so.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -n)
$(BROWSER): $(READY)
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null \
		|| { command -v apt-get >/dev/null && $(SUDO) apt-get update -qq \
			&& $(SUDO) apt-get install -qq -y --no-install-recommends chromium >/dev/null; } \
		|| echo "chromium is not here and cannot be installed: tests in a browser are skipped"
	@touch $(BROWSER)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)
