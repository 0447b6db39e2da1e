"""The numerics on the small model: gradients, packing, masks, self-tests, optimizer."""

from dataclasses import replace
from decimal import Decimal

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainer import selftest
from trainer.attention import attend_documents
from trainer.loop import evaluate, learning_rate, make_optimizer, update
from trainer.lora import LoraProduct
from trainer.loss import batch_of, hidden_states, summed_loss
from trainer.model import adapt, adapter_tensors, frozen_digest, load_base, tensors_digest
from trainer.pack import Pack, num_targets
from trainer.refusal import RefusedError
from trainer.render import Rendered

CPU = torch.device("cpu")


def never():
    """Poll that never stops."""


@pytest.fixture
def adapted(tiny_base, world):
    model = adapt(load_base(tiny_base, precision="fp32", device=CPU), world.spec.adapter, seed=17)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.trainable():
            if ".lora_B." in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def documents(lengths):
    generator = torch.Generator().manual_seed(2)
    return [
        Rendered(
            f"r{i}",
            tuple(torch.randint(3, 250, (n,), generator=generator).tolist()),
            tuple(j >= n // 2 for j in range(n)),
        )
        for i, n in enumerate(lengths)
    ]


def gradients(adapted, packs):
    total = num_targets(packs)
    adapted.peft.zero_grad(set_to_none=True)
    for pack in packs:
        (summed_loss(adapted, batch_of(pack, CPU)) / total).backward()
    return {name: parameter.grad.clone() for name, parameter in adapted.trainable()}


@pytest.mark.parametrize("size", [1, 4, 16])
def test_gradients_do_not_depend_on_accumulation(adapted, size):
    rows = documents([5, 40, 12, 7, 33, 9, 21, 6, 18, 11, 25, 8, 30, 10, 14, 16])
    whole = gradients(adapted, [Pack(tuple(rows))])

    parts = gradients(adapted, [Pack(tuple(rows[i : i + size])) for i in range(0, len(rows), size)])

    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6)


def test_fused_adapters_have_the_gradients_of_plain_autograd():
    torch.manual_seed(0)
    x, w, a, b = (torch.randn(s, dtype=torch.float64) for s in ((6, 5), (7, 5), (2, 5), (7, 2)))
    for tensor in (x, a, b):
        tensor.requires_grad_()
    fused = LoraProduct.apply(x, w, a, b, 0.5)
    plain = x @ w.T + 0.5 * (x @ a.T) @ b.T
    seed = torch.randn_like(plain)
    expected = torch.autograd.grad(plain, (x, a, b), seed)

    got = torch.autograd.grad(fused, (x, a, b), seed)

    torch.testing.assert_close(fused, plain)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)


def test_the_loss_equals_eager_attention_of_each_document_alone(adapted, tiny_base):
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(tiny_base, attn_implementation="eager").eval()
    rows = documents([9, 30, 14])
    expected = 0.0
    for row in rows:
        ids = torch.tensor([row.ids])
        logits = plain(input_ids=ids).logits[0]
        keep = torch.tensor(row.supervised)[1:]
        expected += float(
            cross_entropy(logits[:-1][keep], ids[0, 1:][keep], reduction="sum").detach()
        )
    with torch.no_grad():
        for name, parameter in adapted.trainable():
            if ".lora_B." in name:
                parameter.zero_()

    ours = float(summed_loss(adapted, batch_of(Pack(tuple(rows)), CPU)).detach())

    assert ours == pytest.approx(expected, rel=1e-5)


def test_packed_documents_do_not_see_each_other(adapted):
    packed, joined = selftest.leak(adapted, documents([20, 30, 25]))

    assert packed < 1e-4
    assert joined > 1e-2
    selftest.check_packing_leak(adapted, documents([20, 30, 25]))


def test_the_leak_test_fails_with_an_all_ones_mask(adapted, monkeypatch):
    def with_mask(model, batch):
        model.body.set_attn_implementation("sdpa")
        ones = torch.ones_like(batch.ids)
        out = model.body(
            input_ids=batch.ids,
            position_ids=batch.positions,
            attention_mask=ones,
            use_cache=False,
        )
        return out.last_hidden_state[0]

    monkeypatch.setattr(selftest, "hidden_states", with_mask)

    with pytest.raises(RefusedError, match="packing_leak"):
        selftest.check_packing_leak(adapted, documents([20, 30, 25]))


def test_our_attention_refuses_a_mask():
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="no attention mask"):
        attend_documents(torch.nn.Identity(), q, q, q, torch.ones(1))


def test_a_wrong_head_is_found(adapted, monkeypatch):
    probe = [replace(documents([20])[0], supervised=(True,) * 20)]
    selftest.check_head_rows(adapted, probe)
    shifted = lambda model, batch: summed_loss(model, batch) + 1  # noqa: E731 — a stand-in
    monkeypatch.setattr(selftest, "summed_loss", shifted)

    with pytest.raises(RefusedError, match="head_rows"):
        selftest.check_head_rows(adapted, probe)


def test_an_adapter_without_gradient_is_found(adapted):
    gradients(adapted, [Pack(tuple(documents([20])))])
    selftest.check_gradients(adapted, step=2)
    name, parameter = next(iter(adapted.trainable()))
    parameter.grad.zero_()
    with pytest.raises(RefusedError, match=name):
        selftest.check_gradients(adapted, step=2)
    parameter.grad = None

    with pytest.raises(RefusedError, match=name):
        selftest.check_gradients(adapted, step=1)


def test_the_seed_alone_decides_the_adapter(tiny_base, world):
    digests = []
    for noise, seed in ((1, 17), (99, 17), (1, 18)):
        base = load_base(tiny_base, precision="fp32", device=CPU)
        torch.manual_seed(noise)
        digests.append(tensors_digest(adapter_tensors(adapt(base, world.spec.adapter, seed=seed))))

    assert digests[0] == digests[1] != digests[2]


def test_an_update_leaves_the_base_as_it_was_and_evaluation_leaves_no_trace(adapted, world):
    frozen = frozen_digest(adapted)
    packs = [Pack(tuple(documents([20, 30])))]
    optimizer = make_optimizer(adapted, world.spec.optimizer)
    before = evaluate(adapted, packs, never)
    for step in range(5):
        update(
            adapted,
            optimizer,
            packs,
            spec=world.spec.optimizer,
            step=step,
            num_steps=5,
            seed=1,
            poll=never,
        )

    assert evaluate(adapted, packs, never) < before
    assert frozen_digest(adapted) == frozen
    assert all(p.grad is None for _, p in adapted.trainable())


def test_dropout_depends_on_the_place_not_on_what_ran_before(tiny_base, world):
    spec = replace(world.spec.adapter, dropout=Decimal("0.3"))
    packs = [Pack(tuple(documents([20, 30])))]
    losses = []
    for noise in (1, 2):
        model = adapt(load_base(tiny_base, precision="fp32", device=CPU), spec, seed=17)
        optimizer = make_optimizer(model, world.spec.optimizer)
        torch.manual_seed(noise)
        for step in range(3):
            torch.rand(noise)
            done = update(
                model,
                optimizer,
                packs,
                spec=world.spec.optimizer,
                step=step,
                num_steps=3,
                seed=1,
                poll=never,
            )
        losses.append(done.loss)

    assert losses[0] == losses[1]


def test_bf16_bases_keep_fp32_adapters(tiny_base, world):
    model = adapt(load_base(tiny_base, precision="bf16", device=CPU), world.spec.adapter, seed=1)
    packs = [Pack(tuple(documents([20, 30])))]
    grads = gradients(model, packs)

    assert {p.dtype for _, p in model.trainable()} == {torch.float32}
    assert {g.dtype for g in grads.values()} == {torch.float32}
    assert hidden_states(model, batch_of(packs[0], CPU)).dtype == torch.bfloat16


def test_the_rate_rises_then_falls_to_nothing(world):
    spec = world.spec.optimizer  # 100 per mille of 20 steps are 2
    rates = [learning_rate(spec, step=s, num_steps=20) for s in range(21)]

    assert rates[:3] == [0.0025, 0.005, 0.005]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[20] == pytest.approx(0, abs=1e-12)
