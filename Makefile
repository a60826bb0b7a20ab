# What a newcomer types. CMake, ctest and pytest do the work; `make` leaves the program at build/regccrf.
.PHONY: all demo test bench format clean

all:
	@scripts/bootstrap
	@cmake --preset release --log-level=WARNING
	@cmake --build build

demo: all
	@scripts/demo

test: all
	@ctest --test-dir build --output-on-failure
	@/usr/bin/python3 -m pytest -q tests

# Against the others, where they can be installed (PyTorch, pytorch-crf, ccrf); results go to bench/record.
bench: all
	@cmake --build build --target bench_programs
	@scripts/venv build/venv-bench torch==2.13.0 numpy pytorch-crf==0.7.2 ccrf==0.0.3 automic==0.0.1 matplotlib
	@build/venv-bench/bin/python bench/inference/run.py
	@build/venv-bench/bin/python bench/inference/growth.py

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

clean:
	@rm -rf build
