"""Around the optimiser: parts add up to their mean, and nothing that is not a number reaches the weights."""

from __future__ import annotations

import itertools

import pytest
import torch
from optimise import NotANumber, Optimisation, learning_rate_share
from tiny import tiny_config, tiny_drafter, tiny_target


def parts_of_a_loss(drafter):
    return [drafter.fc.weight.pow(2).sum(), 3 * drafter.fc.weight.sum()]


def test_the_gradient_of_a_step_is_that_of_the_mean_of_its_parts():
    drafter = tiny_drafter(tiny_target())
    optimisation = Optimisation(drafter, tiny_config(train__accumulation=2))
    shares = [optimisation.accumulate(part) for part in parts_of_a_loss(drafter)]
    mean = sum(parts_of_a_loss(drafter)) / 2
    (wanted,) = torch.autograd.grad(mean, drafter.fc.weight)
    torch.testing.assert_close(drafter.fc.weight.grad, wanted)
    assert sum(shares) == pytest.approx(mean.item())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_neither_a_bad_loss_nor_a_bad_gradient_changes_a_weight(bad):
    drafter = tiny_drafter(tiny_target())
    before = drafter.fc.weight.detach().clone()
    optimisation = Optimisation(drafter, tiny_config())
    with pytest.raises(NotANumber, match="the loss is"):
        optimisation.accumulate(drafter.fc.weight.sum() * bad)
    drafter.fc.weight.grad = torch.full_like(drafter.fc.weight, bad)
    with pytest.raises(NotANumber, match="gradient's norm is"):
        optimisation.step()
    assert torch.equal(drafter.fc.weight, before)


def test_the_rate_warms_up_and_falls_to_zero():
    config = tiny_config(steps=100, train__warmup=0.1)
    shares = [learning_rate_share(done, config) for done in range(101)]
    assert shares[:10] == pytest.approx([(done + 1) / 10 for done in range(10)])
    assert shares[10] == 1.0
    assert all(later < earlier for earlier, later in itertools.pairwise(shares[10:]))
    assert shares[100] == pytest.approx(0.0)
