"""How certain sums under kept rules must be, and how much work they may take (docs/rules.md)."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from . import _core

_UNCERTIFIED = _core.Uncertified.__members__


class Certified(NamedTuple):
    """The largest gap; what to do where a gap would be larger; the most cells for each position. None: the default."""
    max_gap: Optional[float] = None
    uncertified: str = "error"
    max_cells: Optional[int] = None

    def checked(self) -> Certified:
        """For what is used later; the core checks max_gap in each call."""
        if self.max_gap is not None and not 0 < self.max_gap < float("inf"):
            raise _core.Error(f"max_gap is {self.max_gap}, expected a number above 0")
        self.for_core()
        return self

    def for_core(self) -> Tuple[Optional[float], _core.Uncertified, Optional[int]]:
        """As `_core.Settings` takes it."""
        if self.uncertified not in _UNCERTIFIED:
            raise _core.Error(f"uncertified is {self.uncertified!r}, expected 'error', 'bound' or 'relax'")
        if self.max_cells is not None and self.max_cells < 1:
            raise _core.Error(f"max_cells is {self.max_cells}, expected a number above 0")
        return self.max_gap, _UNCERTIFIED[self.uncertified], self.max_cells


DEFAULT = Certified()
