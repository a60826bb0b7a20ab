# What a newcomer types. CMake, ctest and pytest do the work; `make` leaves the program at build/regccrf
# and the Python package importable from build/python.
.PHONY: all demo test test-torch-latest bench format clean

all:
	@scripts/bootstrap
	@cmake --preset release --log-level=WARNING
	@cmake --build build

demo: all
	@scripts/demo

test: all
	@ctest --test-dir build --output-on-failure
	@scripts/test-emulated /usr/bin/python3
	@PYTHONPATH=build/python /usr/bin/python3 -m pytest -q tests tests/python

# The Python tests once more, with the newest PyTorch and what the layer is compared with.
test-torch-latest: all
	@scripts/venv build/venv-latest torch==2.13.0 numpy pytest pytorch-crf==0.7.2 ccrf==0.0.3 automic==0.0.1 pynini==2.1.7 transformers accelerate
	@scripts/test-emulated build/venv-latest/bin/python
	@PYTHONPATH=build/python build/venv-latest/bin/python -m pytest -q tests/python

# Against the others, where they can be installed (PyTorch, pytorch-crf, ccrf, CRFsuite); results go to bench/record.
bench: all
	@cmake --build build --target bench_programs
	@scripts/venv build/venv-bench torch==2.13.0 numpy pytorch-crf==0.7.2 ccrf==0.0.3 automic==0.0.1 matplotlib python-crfsuite==0.9.12
	@build/venv-bench/bin/python bench/inference/run.py
	@build/venv-bench/bin/python bench/inference/growth.py
	@build/venv-bench/bin/python bench/inference/long.py
	@PYTHONPATH=build/python build/venv-bench/bin/python bench/torch/step.py
	@build/venv-bench/bin/python bench/tagger/run.py

format:
	@git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format-14 -i

clean:
	@rm -rf build
