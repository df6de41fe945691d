"""Logprobs and entropies in chunks against a dense softmax in float64."""

from __future__ import annotations

import pytest
import torch
from tiny_policy import grad_of
from torch import nn

from rllib_agentic.learner.scoring import WholeHead
from rllib_agentic.losses.logprobs import LegalIndex, token_logprobs

V, D, A = 31, 8, 40


def problem(dtype=torch.float64):
    torch.manual_seed(0)
    hidden = torch.randn(A, D, dtype=dtype, requires_grad=True)
    head = nn.Linear(D, V, dtype=dtype)
    targets = torch.randint(V, (A,))
    sets = []
    for a in range(A):
        others = [int(t) for t in torch.randperm(V) if t != targets[a]]
        sets.append([[], [int(targets[a])], [int(targets[a]), *others[:3]], [*others, int(targets[a])]][a % 4])
    offsets = torch.tensor([0, *torch.tensor([len(s) for s in sets]).cumsum(0).tolist()])
    return hidden, head, targets, LegalIndex(offsets, torch.tensor([t for s in sets for t in s])), sets


def dense(hidden, head, targets, sets, temperature):
    logits = head(hidden) / temperature
    logprobs, entropies = [], []
    for a in range(len(targets)):
        scores = logits[a]
        if sets is not None and sets[a]:
            scores = scores[sorted(sets[a])]
            chosen = sorted(sets[a]).index(int(targets[a]))
        else:
            chosen = int(targets[a])
        distribution = torch.distributions.Categorical(logits=scores)
        logprobs.append(distribution.log_prob(torch.tensor(chosen)))
        entropies.append(distribution.entropy())
    return torch.stack(logprobs), torch.stack(entropies)


@pytest.mark.parametrize("whole_head", [False, True])
@pytest.mark.parametrize("max_logits", [1, 3 * V, 10**6])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients(whole_head, max_logits, constrained, temperature):
    hidden, head, targets, legal, sets = problem()
    used = WholeHead(head, V) if whole_head else head
    found = token_logprobs(
        hidden, used, targets, temperature=temperature, legal=legal if constrained else None,
        entropy="gradient", max_logits=max_logits,
    )  # fmt: skip
    expected = dense(hidden, head, targets, sets if constrained else None, temperature)
    torch.testing.assert_close(found.logprobs, expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.entropies, expected[1], rtol=1e-12, atol=1e-12)
    mix = torch.linspace(-1, 1, A, dtype=torch.float64)
    parameters = [hidden, head.weight, head.bias]
    gradients = torch.autograd.grad((mix * found.logprobs + mix.square() * found.entropies).sum(), parameters)
    wanted = torch.autograd.grad((mix * expected[0] + mix.square() * expected[1]).sum(), parameters)
    for one, two in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_forced_tokens_are_exactly_zero_even_where_the_head_is_broken():
    hidden, head, targets, _, _ = problem()
    with torch.no_grad():
        head.weight.fill_(torch.nan)
    forced = LegalIndex(torch.arange(A + 1), targets)
    found = token_logprobs(hidden, head, targets, legal=forced)
    assert found.logprobs.tolist() == [0.0] * A and found.entropies.tolist() == [0.0] * A


def test_temperature():
    # AL16
    head = nn.Linear(3, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        head.weight.copy_(torch.eye(3))
    hidden = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64)
    found = token_logprobs(hidden, head, torch.tensor([0]), temperature=0.5)
    assert found.logprobs.item() == pytest.approx(-0.142932, abs=1e-6)


def test_entropy_as_a_value_has_no_gradient():
    hidden, head, targets, legal, _ = problem()
    found = token_logprobs(hidden, head, targets, legal=legal, entropy="value", max_logits=1)
    assert not found.entropies.requires_grad and found.logprobs.requires_grad
    assert len(token_logprobs(hidden, head, targets, entropy="none").entropies) == 0


def test_bfloat16_states_give_float32_numbers():
    hidden, head, targets, legal, sets = problem(torch.bfloat16)
    found = token_logprobs(hidden, head, targets, legal=legal)
    assert found.logprobs.dtype == torch.float32
    logits = head(hidden).double()
    expected = dense(hidden, lambda _: logits, targets, sets, 1.0)[0]
    torch.testing.assert_close(found.logprobs.double(), expected, rtol=1e-5, atol=2e-2)


def test_large_logits_stay_finite():
    head = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1e4, 0.0], [0.0, 1e4], [-1e4, 0.0]]))
    hidden = torch.eye(2, requires_grad=True)
    found = token_logprobs(hidden, head, torch.tensor([2, 1]), entropy="gradient")
    (found.logprobs + found.entropies).sum().backward()
    assert found.logprobs.tolist() == [-2e4, 0.0] and grad_of(hidden).isfinite().all()


def test_no_positions():
    hidden, head, targets, _, _ = problem()
    found = token_logprobs(hidden[:0], head, targets[:0])
    assert found.logprobs.shape == (0,)


def test_all_logits_are_never_alive_at_once():
    hidden, _, targets, _, _ = problem()
    widest = 0

    class Watched(nn.Linear):
        def forward(self, states):
            nonlocal widest
            widest = max(widest, len(states))
            return super().forward(states)

    watched = Watched(D, V, dtype=torch.float64)
    token_logprobs(hidden, watched, targets, max_logits=5 * V).logprobs.sum().backward()
    assert widest == 5
