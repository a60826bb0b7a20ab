import os
import re
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests are small; threads that wait for each other only slow them down
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import needs  # noqa: E402

IMPORTS_TORCH = re.compile(r"^(import|from) (torch|helpers|devices|regccrf\.torch)\b", re.MULTILINE)


class Module(pytest.Module):
    """A file of tests. They all import the package and what it works with, so that is asked for here; PyTorch where they use it."""

    def collect(self):
        for name in needs.PACKAGES:
            if name != "torch" or IMPORTS_TORCH.search(self.path.read_text(encoding="utf-8")):
                needs.package(name)
        return super().collect()


def pytest_pycollect_makemodule(module_path, parent):
    return Module.from_parent(parent, path=module_path)
