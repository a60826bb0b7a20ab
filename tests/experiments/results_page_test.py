"""docs/results.md holds what the JSON in experiments/results says."""
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_as_the_tables_make_it():
    command = [sys.executable, ROOT / "experiments" / "tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + "run experiments/tables.py"
