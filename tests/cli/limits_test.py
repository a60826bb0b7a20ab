"""--max-memory against what the system says a process took. How well --max-seconds holds is a matter of speed: bench/compile."""
import sys
from pathlib import Path

import pytest

from needs import PROGRAM

sys.path.append(str(Path(__file__).parents[2] / "bench" / "compile"))
from patterns import HOSTILE
from process import compiled, with_file

pytestmark = pytest.mark.usefixtures("program")

MEGABYTES, TOLERANCE = 100, 1.2
LARGE = ["--max-states", "1000000000", "--max-arcs", "1000000000", "--max-seconds", "600"]
# Each meets the limit in another place: reading, writing out, positions, subsets, tuples, merging.
PLACES = {"flat, 150000 parts": "parse", "labels of three sets": "expand", "names that double": "expand", "dense repetition": "build",
          "A 40 behind A": "determinise", "subsets in a row": "intersect"}


@pytest.mark.parametrize("name", PLACES)
def test_memory_stays_within_its_limit(name):
    run = with_file(HOSTILE[name], lambda path: compiled(PROGRAM, path, *LARGE, "--max-memory", str(MEGABYTES)))
    assert f"[{PLACES[name]}] needs more than the limit of {MEGABYTES} MB; raise it with --max-memory" in run["error"]
    assert run["megabytes"] < TOLERANCE * MEGABYTES


def test_a_limit_that_suffices_is_no_error():
    run = with_file("(A | B)* A (A | B){12} A (A | B)*", lambda path: compiled(PROGRAM, path, "--max-memory", "50"))
    assert run["error"] == "" and run["states"] > 1000
