"""Which of several progress bars without a name is the training's: that of an evaluation begins while it is not full.

Rule: a bar of fewer steps than another that has not ended is a part of that one's step, as in transformers' Trainer.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_INNER = 3000
"""After so many of them it is the other bar that has ended without saying so. Five minutes of tqdm's."""


@dataclass
class OuterBar:
    """Takes the bars in order."""

    step: int | None = None
    total: int | None = None
    inner: int = 0

    def holds(self, step: int | None, total: int | None) -> bool:
        """Whether the bar is an inner one; another one becomes the outer one."""
        if step is None or total is None:
            return False
        if self.is_open and total < (self.total or 0) and self.inner < MOST_INNER:
            self.inner += 1
            return True
        self.step, self.total, self.inner = step, total, 0
        return False

    @property
    def is_open(self) -> bool:
        return self.step is not None and self.total is not None and self.step < self.total

    def forget(self) -> None:
        self.step, self.total, self.inner = None, None, 0
