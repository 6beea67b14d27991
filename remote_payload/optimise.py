"""What happens around the optimiser: the schedule, accumulation, clipping, and the proof that every parameter learns.

Rule: one `step` is one optimiser step whatever it was accumulated from, and its whole state goes into the checkpoint.
"""

from __future__ import annotations

import math
from typing import Any, Dict

import torch
from config import Config
from drafter import Drafter


class TrainingError(RuntimeError):
    """Training cannot go on: a loss that is not a number, a parameter that does not learn."""


class NotANumber(TrainingError):
    """The weights are still those of the step before."""


class Optimisation:
    """AdamW under linear warm-up and a cosine, for one drafter."""

    def __init__(self, drafter: Drafter, config: Config) -> None:
        self.drafter, self._config = drafter, config
        self.optimizer = torch.optim.AdamW(
            drafter.parameters(), lr=config.train.learning_rate, weight_decay=config.train.weight_decay
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda done: learning_rate_share(done, config)
        )

    @property
    def learning_rate(self) -> float:
        return float(self.scheduler.get_last_lr()[0])

    def accumulate(self, loss: torch.Tensor) -> float:
        """Adds this part's gradients; a step is made of `train.accumulation` equal parts.

        Returns its share of the step's loss. Raises NotANumber.
        """
        share = loss / self._config.train.accumulation
        number = float(share.detach())
        if not math.isfinite(number):
            raise NotANumber(f"the loss is {number}")
        share.backward()
        return number

    def step(self) -> float:
        """Clips, steps and forgets the gradients. Returns their norm before clipping.

        Raises NotANumber.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), self._config.train.gradient_clip))
        if not math.isfinite(norm):
            raise NotANumber(f"the gradient's norm is {norm}")
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def state(self) -> Dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}

    def load_state(self, state: Dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])


def learning_rate_share(done: int, config: Config) -> float:
    """Linear warm-up, then a cosine to zero. `done` steps are behind."""
    warmup = max(1, round(config.train.warmup * config.steps))
    if done < warmup:
        return (done + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - warmup) / max(1, config.steps - warmup))))


def check_gradients(drafter: Drafter) -> None:
    """A layer that silently gets no gradient trains nothing while the loss still falls. Raises TrainingError.

    Reentrant activation checkpointing does exactly that when it is called with keywords.
    """
    silent = [name for name, p in drafter.named_parameters() if p.grad is None or not bool(p.grad.any())]
    if silent:
        raise TrainingError(f"{len(silent)} parameters got no gradient in the first step: {', '.join(silent[:5])}")
