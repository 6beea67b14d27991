"""Names and shapes of the published layout, anchors, labels, loss, and that everything learns."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import drafter
import pytest
import torch
from anchors import PADDING, choose_anchors
from drafter import extend_context
from feed import Batch, document_positions, make_batch
from forward import step_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from loss import block_labels, block_loss, decay_weights, dpace_weights
from optimise import TrainingError, check_gradients
from order import grow
from prepare import Prepared
from rows import rows_of
from target import build_target_layer_ids
from tiny import tiny_config, tiny_drafter, tiny_target


def published_layout(layers, hidden, middle, heads, kv_heads, head, selected):
    """Written out here on its own: what the servers' loaders expect."""
    names = {"fc.weight": (hidden, selected * hidden), "hidden_norm.weight": (hidden,), "norm.weight": (hidden,)}
    for i in range(layers):
        names |= {
            f"layers.{i}.input_layernorm.weight": (hidden,),
            f"layers.{i}.post_attention_layernorm.weight": (hidden,),
            f"layers.{i}.self_attn.q_proj.weight": (heads * head, hidden),
            f"layers.{i}.self_attn.k_proj.weight": (kv_heads * head, hidden),
            f"layers.{i}.self_attn.v_proj.weight": (kv_heads * head, hidden),
            f"layers.{i}.self_attn.o_proj.weight": (hidden, heads * head),
            f"layers.{i}.self_attn.q_norm.weight": (head,),
            f"layers.{i}.self_attn.k_norm.weight": (head,),
            f"layers.{i}.mlp.gate_proj.weight": (middle, hidden),
            f"layers.{i}.mlp.up_proj.weight": (middle, hidden),
            f"layers.{i}.mlp.down_proj.weight": (hidden, middle),
        }
    return names


def test_the_tensors_are_those_of_the_published_layout():
    state = {name: tuple(tensor.shape) for name, tensor in tiny_drafter(tiny_target()).state_dict().items()}
    assert state == published_layout(2, 32, 32, 2, 1, 16, 2)
    assert len(state) == 11 * 2 + 3


@pytest.mark.parametrize(
    ("target_layers", "draft_layers", "ids"),
    [(36, 5, [1, 9, 17, 25, 33]), (24, 5, [1, 6, 11, 16, 21]), (6, 2, [1, 3]), (6, 1, [3])],
)
def test_selected_layers(target_layers, draft_layers, ids):
    assert build_target_layer_ids(target_layers, draft_layers) == ids


def test_context_read_in_parts_is_context_read_at_once():
    drafter = tiny_drafter(tiny_target())
    features, positions = torch.randn(1, 6, 64), torch.arange(6)[None]
    whole = drafter.read_context(features, positions)
    parts = extend_context(
        drafter.read_context(features[:, :4], positions[:, :4]),
        drafter.read_context(features[:, 4:], positions[:, 4:]),
    )
    for (keys, values), (part_keys, part_values) in zip(whole, parts, strict=True):
        torch.testing.assert_close(keys, part_keys)
        torch.testing.assert_close(values, part_values)


@given(learned=st.lists(st.booleans(), min_size=2, max_size=30), count=st.integers(1, 40), seed=st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_anchors_are_sorted_distinct_and_of_a_fixed_count(learned, count, seed):
    chance = torch.Generator().manual_seed(seed)
    both = [learned, [True] * len(learned)]
    anchors, kept = choose_anchors(torch.zeros(2, len(learned)).int(), torch.tensor(both), count, chance)
    assert anchors.shape == kept.shape == (2, count)
    assert (anchors[:, 1:] >= anchors[:, :-1]).all()
    for row, marks in enumerate(both):
        good = anchors[row][kept[row]].tolist()
        allowed = [place for place in range(len(marks) - 1) if marks[place] and marks[place + 1]]
        assert len(set(good)) == len(good) == min(count, len(allowed))
        assert set(good) <= set(allowed)


def test_a_short_document_gets_as_many_anchors_as_a_long_one():
    document = torch.tensor([[0] * 6 + [1] * 50 + [2] * 4 + [PADDING] * 4])
    learned = (document != PADDING) & (torch.arange(64) != 2)
    anchors, kept = choose_anchors(document, learned, 11, torch.Generator().manual_seed(0))
    assert kept.all()
    in_document = document[0, anchors[0]].tolist()
    # The first has three candidates (a token not learned is neither anchor nor first label), the last has three.
    assert [in_document.count(number) for number in (0, 1, 2)] == [3, 5, 3]
    assert {0, 3, 4} == set(anchors[0, :3].tolist())


def test_slot_k_is_labelled_with_the_token_at_anchor_plus_k_up_to_the_responses_end():
    tokens = torch.arange(100, 110)[None]
    learned = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1, 1, 1]]).bool()
    anchors, kept = torch.tensor([[2, 3, 7, 7]]), torch.tensor([[True, True, True, False]])
    labels, supervised = block_labels(tokens, torch.zeros_like(tokens), learned, anchors, kept, 4)
    assert labels[0, 0].tolist() == [103, 104, 105]
    assert labels[0, 2, :2].tolist() == [108, 109]
    assert supervised.tolist() == [[[True, True, False], [True, False, False], [True, True, False], [False] * 3]]


def test_labels_end_with_the_document_and_at_the_first_token_not_learned():
    tokens, document = torch.arange(10)[None], torch.tensor([[0] * 4 + [1] * 6])
    learned = torch.tensor([[True] * 7 + [False, True, True]])
    anchors, kept = torch.tensor([[2, 5, 6]]), torch.tensor([[True] * 3])
    _, supervised = block_labels(tokens, document, learned, anchors, kept, 4)
    assert supervised.tolist() == [[[True, False, False], [True, False, False], [False] * 3]]


@pytest.mark.parametrize("weighting", ["decay", "dpace"])
@pytest.mark.parametrize("chunk_blocks", [1, 2, 100])
def test_the_loss_is_the_weighted_cross_entropy_whatever_the_chunks(chunk_blocks, weighting):
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 11)
    hidden = torch.randn(2, 3, 4, 8, requires_grad=True)
    labels, supervised = torch.randint(11, (2, 3, 3)), torch.rand(2, 3, 3) > 0.3
    out = block_loss(hidden, labels, supervised, head, weighting=weighting, decay=4.0, chunk_blocks=chunk_blocks)
    logs = head(hidden[:, :, 1:]).log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    weights = torch.tensor([math.exp(-k / 4) for k in range(3)]) * supervised
    if weighting == "dpace":
        weights = dpace_weights(-logs.detach().flatten(0, 1), supervised.flatten(0, 1)).view_as(supervised)
    wanted = -(logs * weights).sum() / weights.sum()
    torch.testing.assert_close(out.loss, wanted)
    (gradient,) = torch.autograd.grad(out.loss, hidden, retain_graph=True)
    (wanted_gradient,) = torch.autograd.grad(wanted, hidden)
    torch.testing.assert_close(gradient, wanted_gradient)
    assert decay_weights(8, 4.0)[0] == 1.0


def test_the_whole_vocabulary_never_meets_all_slots_at_once():
    widest = []

    def head(states):
        widest.append(len(states))
        return torch.zeros(len(states), 11) + states.sum(-1, keepdim=True)

    labels, supervised = torch.zeros(2, 8, 3, dtype=torch.long), torch.ones(2, 8, 3, dtype=torch.bool)
    hidden = torch.randn(2, 8, 4, 8, requires_grad=True)
    block_loss(hidden, labels, supervised, head, weighting="decay", decay=4.0, chunk_blocks=4).loss.backward()
    assert max(widest) == 4 * 3
    assert len(widest) == 2 * 4  # once forward, once more when the backward pass needs them


def test_dpace_weighs_a_slot_by_what_it_moves_of_the_accepted_length():
    probability = torch.tensor([[0.9, 0.2, 0.6]], requires_grad=True)
    valid = torch.tensor([[True, True, True]])
    smoothed = 0.5 + 0.5 * probability
    (slope,) = torch.autograd.grad(smoothed.cumprod(dim=1).sum(), smoothed)
    weights = dpace_weights(-probability.detach().log(), valid)
    torch.testing.assert_close(weights, (slope * smoothed).detach())
    cut = dpace_weights(-probability.detach().log(), torch.tensor([[True, False, False]]))
    torch.testing.assert_close(cut, torch.tensor([[0.95, 0.0, 0.0]]))


def test_a_target_that_turns_otherwise_is_refused():
    target = tiny_target()
    target.model.config.rope_parameters["rope_theta"] = 1e6
    with pytest.raises(ValueError, match="RoPE"):
        target.drafter_shape(intermediate_size=32)


def test_a_packed_row_is_its_documents_on_their_own():
    config, target = tiny_config(), tiny_target()
    drafter = tiny_drafter(target)
    tokens = torch.randint(2, 40, (1, 19), generator=torch.Generator().manual_seed(3))
    document = torch.tensor([[0] * 8 + [1] * 9 + [PADDING] * 2])
    anchors = torch.tensor([[2, 5, 11, 14]])

    def loss(tokens, document, anchors):
        positions = document_positions(document)
        kept = torch.ones_like(anchors, dtype=torch.bool)
        features = target.features(tokens, positions)
        batch = Batch(1, [0], 0, tokens, document, document != PADDING, anchors, kept, features)
        return features, step_loss(batch, target, drafter, 1, config)

    features, packed = loss(tokens, document, anchors)
    parts = [
        loss(tokens[:, part], torch.zeros_like(tokens[:, part]), anchors[:, blocks] - part.start)
        for part, blocks in ((slice(0, 8), slice(0, 2)), (slice(8, 17), slice(2, 4)))
    ]
    torch.testing.assert_close(features[:, :17], torch.cat([part for part, _ in parts], dim=1))
    weights = [decay_weights(8, 4.0)[: end - anchor].sum() for anchor, end in ((2, 7), (5, 7), (11, 16), (14, 16))]
    shares = [weights[0] + weights[1], weights[2] + weights[3]]
    wanted = sum(share * part.loss for share, (_, part) in zip(shares, parts, strict=True)) / sum(shares)
    torch.testing.assert_close(packed.loss, wanted)


def tiny_batch(target, config):
    chance = torch.Generator().manual_seed(3)
    tokens = torch.randint(2, 40, (6, 20), generator=chance)
    rows = rows_of([(row, [place >= 6 for place in range(20)]) for row in tokens.tolist()])
    return make_batch(
        1, Prepared(Path(), target, SimpleNamespace(end_id=0), rows, grow((), met=0, rows=6), 20, None), config
    )


def test_every_parameter_gets_a_gradient_in_the_first_step():
    config, target = tiny_config(), tiny_target()
    drafter = tiny_drafter(target)
    step_loss(tiny_batch(target, config), target, drafter, 1, config).loss.backward()
    check_gradients(drafter)
    assert all(p.grad is None for p in target.model.parameters())
    drafter.fc.weight.grad = None
    with pytest.raises(TrainingError, match=r"fc\.weight"):
        check_gradients(drafter)


def gradients_of_a_step(*, recompute):
    config, target = tiny_config(), tiny_target()
    learner = tiny_drafter(target)
    learner.recompute = recompute
    step_loss(tiny_batch(target, config), target, learner, 1, config).loss.backward()
    check_gradients(learner)
    return {name: parameter.grad for name, parameter in learner.named_parameters()}


def test_recomputing_layers_changes_no_gradient():
    kept, recomputed = gradients_of_a_step(recompute=False), gradients_of_a_step(recompute=True)
    assert len(recomputed) == 25
    assert all(bool(recomputed[name].any()) and torch.equal(recomputed[name], kept[name]) for name in kept)


def test_recomputing_that_loses_gradients_is_caught(monkeypatch):
    def reentrant(layer, *inputs, use_reentrant):
        return real(layer, *inputs, use_reentrant=True)

    real = drafter.checkpoint
    monkeypatch.setattr(drafter, "checkpoint", reentrant)
    with pytest.raises(TrainingError, match="parameters got no gradient in the first step"):
        gradients_of_a_step(recompute=True)
