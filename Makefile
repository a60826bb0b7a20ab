# What a newcomer types. CMake, ctest and pytest do the work; `make` leaves the program at build/regccrf
# and the Python package importable from build/python.
.PHONY: all demo test test-torch-latest format clean

all:
	@scripts/bootstrap
	@cmake --preset release --log-level=WARNING
	@cmake --build build

demo: all
	@scripts/demo

test: all
	@ctest --test-dir build --output-on-failure
	@PYTHONPATH=build/python /usr/bin/python3 -m pytest -q tests python/tests

# The Python tests once more, with the newest PyTorch and what the layer is compared with.
test-torch-latest: all
	@scripts/venv-latest
	@PYTHONPATH=build/python build/venv-latest/bin/python -m pytest -q python/tests

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

clean:
	@rm -rf build
