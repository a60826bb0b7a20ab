"""Mistakes on the command line: the message says which command's help to read, and what was probably meant."""
import subprocess

import pytest

from needs import PROGRAM

pytestmark = pytest.mark.usefixtures("program")


@pytest.mark.parametrize("line, says", {
    "trian data": "there is no command 'trian': did you mean train?",
    "train": "train: data is required",
    "tag data": "tag: --model is required (regccrf tag --help",
    "train data -m model --contsrain decode": "not expected: --contsrain: did you mean --constrain? (regccrf train --help",
    "compile -e O --jsn=1": "did you mean --json?",
    "compile -e O --zzzzzzzzz": "not expected: --zzzzzzzzz (regccrf compile --help",
    "--hlep": "(regccrf --help",
}.items())
def test_a_mistake_is_named(line, says):
    done = subprocess.run([PROGRAM, *line.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("regccrf: error: ") and says in done.stderr
