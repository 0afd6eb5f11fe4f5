PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
# Python compiles what it imports, which is a part of what is installed.
INSTALL := $(RUN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
# A worker that is idle takes tests from the other, so that most files, and what their tests share, stay with one.
PYTEST := $(RUN)/python -m pytest --numprocesses 2 --dist worksteal
MAKEFLAGS += --jobs=2

.PHONY: demo chromium test quick lint docs bench fuzz format clean

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(RUN)/python examples/demo.py

test: lint chromium
	$(PYTEST)

# The studio's page is tested in a real browser, where there is one.
chromium:
	@test -x /usr/bin/chromium || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
	  && apt-get install -y -qq chromium > /dev/null; } \
	  || echo "no /usr/bin/chromium and no right to install it: tests of the studio's page are skipped"

quick: lint
	$(PYTEST) -m "not slow"

lint: $(VENV)/.installed
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

format: $(VENV)/.installed
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .
	$(RUN)/python docs/wrap.py
	$(RUN)/python docs/import_graph.py --write

fuzz: $(VENV)/.installed
	$(RUN)/python tests/hostile/fuzz.py $(FUZZ)

docs: $(VENV)/.installed
	$(RUN)/zensical build --clean
	@echo "open out/site/index.html"

# The rehearsal at full size takes half an hour and 16 GB: python benchmarks/bench_full_size.py FOLDER
bench: $(VENV)/.installed
	for script in $(filter-out %/bench_full_size.py, $(wildcard benchmarks/bench_*.py)); do $(RUN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) out
