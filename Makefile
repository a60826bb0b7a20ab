# What a newcomer types. CMake, ctest and pytest do the work; `make` leaves the program at build/regccrf.
.PHONY: all demo test format clean

all:
	@scripts/bootstrap
	@cmake --preset release --log-level=WARNING
	@cmake --build build

demo: all
	@scripts/demo

test: all
	@ctest --test-dir build --output-on-failure
	@/usr/bin/python3 -m pytest -q tests

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

clean:
	@rm -rf build
