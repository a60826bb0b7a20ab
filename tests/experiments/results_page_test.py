"""docs/results.md holds what the JSON in experiments/results says."""
import subprocess
import sys

import needs

needs.package("numpy")


def test_the_page_is_as_the_tables_make_it():
    command = [sys.executable, needs.ROOT / "experiments" / "tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + "run experiments/tables.py"
