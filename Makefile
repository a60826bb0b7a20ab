# What a newcomer types. CMake, ctest and pytest do the work; `make` leaves the program at build/regccrf
# and the Python package importable from build/python. Each builds what it needs and no more.
.PHONY: all program everything demo test test-torch-latest bench bench-quick site format lint tidy wheels clean

all: program
	@cmake --build build --target package

program:
	@scripts/bootstrap build
	@cmake --preset release --log-level=NOTICE >/dev/null
	@cmake --build build --target program

everything:
	@scripts/bootstrap build test
	@cmake --preset release --log-level=NOTICE >/dev/null
	@cmake --build build

demo: program
	@scripts/demo

test: everything
	@ctest --test-dir build --output-on-failure --no-tests=error
	@scripts/test-emulated /usr/bin/python3
	@PYTHONPATH=build/python /usr/bin/python3 -m pytest -q tests

# The Python tests once more, with the newest PyTorch and what the layer is compared with.
test-torch-latest: everything
	@scripts/venv build/venv-latest torch==2.13.0 numpy pytest pytorch-crf==0.7.2 ccrf==0.0.3 automic==0.0.1 pynini==2.1.7 transformers accelerate \
	  scikit-learn==1.9.1 sklearn-crfsuite==0.5.0 onnx==1.23.2 onnxruntime==1.31.1 onnxscript==0.7.2 usaddress==0.5.16 probablepeople==0.5.6
	@scripts/test-emulated build/venv-latest/bin/python
	@PYTHONPATH=build/python build/venv-latest/bin/python -m pytest -q tests/python

# Style and types of the Python files (pyproject.toml says which rules), and who includes whom. Needs no build; types are
# checked against the packages that scripts/bootstrap installs.
lint:
	@scripts/venv build/venv-lint ruff==0.17.5 mypy==2.4.1
	@build/venv-lint/bin/ruff check
	@build/venv-lint/bin/mypy --python-executable /usr/bin/python3
	@scripts/check-includes

# Against the others, where they can be installed (PyTorch, pytorch-crf, ccrf, CRFsuite); results go to bench/record.
bench: all
	@scripts/bootstrap bench
	@cmake --build build --target bench_programs
	@scripts/bench

# Ours alone against the record, as ratios, in a minute or two.
bench-quick: all
	@scripts/bootstrap bench
	@cmake --build build --target bench_programs
	@PYTHONPATH=build/python $$(scripts/bench --python) bench/quick.py

# The documents as a site, build/site. The reference is made from the built package and the headers.
site: all
	@scripts/bootstrap tools
	@scripts/venv build/venv-site mkdocs==1.6.1 mkdocs-material==9.8.1
	@NO_MKDOCS_2_WARNING=1 build/venv-site/bin/mkdocs build --quiet --strict

# clang-tidy with the checks of .clang-tidy; needs Debian's clang-tidy-14. Takes minutes: `make tidy FILES=src/base/file.cc` for one.
# Kernels are left out: their SIMD code is one file for eight instruction sets, and takes longer than all the rest.
FILES ?= $(filter-out src/inference/cpu/kernels.cc,$(wildcard src/*/*.cc src/inference/*/*.cc src/inference/*/*/*.cc cli/*.cc))
tidy:
	@scripts/bootstrap build
	@cmake --preset release --log-level=NOTICE -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	@sed -i 's/ -fno-gnu-unique//' build/compile_commands.json  # an option of g++ that clang does not know
	@printf '%s\n' $(FILES) | xargs -P $$(nproc) -n 1 clang-tidy-14 -p build --quiet --extra-arg=-Wno-unknown-warning-option

# Wheels for others, in dist/, and a try of each on bare machines; the second needs root and debootstrap.
wheels:
	@scripts/wheels
	@scripts/test-wheels

format:
	@git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format-14 -i

clean:
	@rm -rf build
