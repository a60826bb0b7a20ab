"""Tests import what they share and what the experiments are made of: `import needs`, `import corpora`."""
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "experiments"), str(HERE)]

import needs  # noqa: E402


@pytest.fixture(scope="session")
def program():
    needs.program()


@pytest.fixture(scope="session")
def mpi():
    needs.mpi()
