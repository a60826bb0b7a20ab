"""What tests need of a build and of scripts/bootstrap. Where it is missing they fail and say what to do, because a run
that skips them is green without having tested anything; with REGCCRF_ALLOW_MISSING=1 they are skipped.

Tests skip by themselves where something may rightly be absent: data beside the repository, a device, packages that only
`make test-torch-latest` installs.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import importlib
import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(os.environ.get("REGCCRF_PROGRAM", ROOT / "build" / "regccrf"))
PACKAGES = {
    "numpy": "scripts/bootstrap installs it",
    "torch": "scripts/bootstrap installs it",
    "regccrf": "make builds it, PYTHONPATH=build/python finds it",
}


def need(there, message):
    """Fails with the message unless it is there; may be called from a test, a fixture or a module."""
    if there:
        return
    if os.environ.get("REGCCRF_ALLOW_MISSING") == "1":
        pytest.skip(message, allow_module_level=True)
    pytest.fail(f"{message} (REGCCRF_ALLOW_MISSING=1 skips what needs it)", pytrace=False)


def program():
    need(PROGRAM.is_file(), f"there is no program at {PROGRAM}: make builds it, REGCCRF_PROGRAM names another")


def mpi():
    part = PROGRAM.parent / "regccrf_mpi.so"
    need(shutil.which("mpirun"), "there is no mpirun: scripts/bootstrap installs it (Debian: openmpi-bin)")
    need(part.is_file(), f"there is no {part}: make builds it where scripts/bootstrap was run (Debian: libopenmpi-dev)")


def package(name):
    """The imported package. One that is there and does not load is an error, whatever is allowed to be missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        absent = str(error)
    need(False, f"{absent}: {PACKAGES[name]}")
