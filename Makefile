PYTHON ?= python3
# Of the machine without a network that `make wheelhouse` collects for.
PYTHON_VERSION ?= 3.12
MACHINE ?= x86_64
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint format wheelhouse clean

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/ready
	$(BIN)/python -m agent run --config configs/quickstart.yaml

# What measures runs alone; builds and the rest run side by side.
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not timed"
	$(BIN)/python -m pytest -m timed

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheelhouse: $(VENV)/ready
	$(BIN)/python tools/wheelhouse.py --python $(PYTHON_VERSION) --machine $(MACHINE)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
