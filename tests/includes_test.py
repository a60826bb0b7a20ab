"""scripts/check-includes: passes on the repository, and names the file and line of an include that goes against the flow."""
import subprocess
import sys

import pytest

from needs import ROOT

HEADERS = ["src/base/file.h", "src/inference/batch.h", "src/inference/cuda/device.h", "src/language/expr.h",
           "tests/oracle/random.h"]


def check(*arguments):
    command = [sys.executable, str(ROOT / "scripts" / "check-includes"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def plant(root, files):
    for path, text in {**dict.fromkeys(HEADERS, "#pragma once\n"), **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_the_repository_passes():
    run = check()
    assert run.returncode == 0, run.stdout + run.stderr


def test_includes_down_the_flow_pass(tmp_path):
    plant(tmp_path, {"src/inference/cpu/loss.cc": '#include <vector>\n\n#include "base/file.h"\n#include "inference/batch.h"\n',
                     "cli/main.cc": '#include "language/expr.h"\n'})
    run = check(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("path, included, why", [
    ("src/base/file.cc", "inference/batch.h", "inference comes after base"),
    ("src/inference/batch.cc", "tests/oracle/random.h", "tests are included by tests alone"),
    ("src/tagger/model.cc", "language/expr.h", "tagger stands without the language layer"),
    ("src/inference/cpu/loss.cc", "inference/cuda/device.h", "inference/cuda comes after inference/cpu"),
    ("src/inference/no_cuda/stubs.cc", "inference/cuda/device.h", "one device's part does not see another's"),
])
def test_an_include_against_the_flow_is_named(tmp_path, path, included, why):
    plant(tmp_path, {path: f'// A file.\n#include "base/file.h"\n#include "{included}"\n'})
    run = check(tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert run.stdout.splitlines() == [f"{path}:3: includes {included}: {why}"]


def test_a_file_without_a_room_is_an_error(tmp_path):
    plant(tmp_path, {"src/attic/old.cc": '#include "base/file.h"\n'})
    run = check(tmp_path)
    assert run.returncode != 0
    assert "src/attic/old.cc has no room" in run.stderr
