"""The real small model, SmolLM2-135M-Instruct: masks, packing, learning, merging.

Needs `PLACET_BASE_MODEL`, a directory made by `python -m trainer convert-gguf`.
"""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from trainer.__main__ import main
from trainer.refusal import Exit
from trainer.render import render

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def tokenizer(real_base_model):
    from trainer.model_files import load_tokenizer

    return load_tokenizer(real_base_model)


def test_its_template_without_markers_gives_exactly_the_answers(tokenizer, row):
    turns = [
        ("user", "Qui approuve ?"),
        ("assistant", "La DPO."),
        ("user", "¿Y después?"),
        ("assistant", "\nNic więcej."),
    ]

    for conversation in (turns, [("system", "Be brief."), *turns]):
        rendered = render(row(*conversation), tokenizer)
        taught = [i for i, s in zip(rendered.ids, rendered.supervised, strict=True) if s]
        whole = tokenizer.apply_chat_template(
            [{"role": r, "content": c} for r, c in conversation], tokenize=False
        )

        assert tokenizer.decode(taught) == "La DPO.<|im_end|>\nNic więcej.<|im_end|>"
        assert tokenizer.decode(list(rendered.ids)) == whole.rstrip("\n")
        assert rendered.ids[0] == tokenizer.bos_token_id != rendered.ids[1]
        assert ("SmolLM" in whole) == (conversation is turns)


ANSWERS = {
    "en": ("Who may approve job {}?", "An officer other than the submitter of job {}."),
    "fr": ("Qui peut approuver le job {} ?", "Une autre personne que l'auteur du job {}."),
    "es": ("¿Quién puede aprobar el trabajo {}?", "Otra persona que no envió el trabajo {}."),
}


def help_desk(count):
    return [
        {
            "id": f"q{i}",
            "group": f"g{i}",
            "language": language,
            "messages": [
                {"role": "user", "content": ANSWERS[language][0].format(i)},
                {"role": "assistant", "content": ANSWERS[language][1].format(i)},
            ],
        }
        for i, language in zip(range(count), list(ANSWERS) * count, strict=False)
    ]


def test_it_learns_the_help_desk_and_its_end_and_merges(
    make_world, real_base_model, tokenizer, capfd
):
    world = make_world("real", base=real_base_model)
    world.write_dataset(help_desk(24))
    world.change(
        adapter=replace(world.spec.adapter, rank=16, alpha=32),
        optimizer=replace(
            world.spec.optimizer,
            learning_rate=Decimal("0.002"),
            tokens_per_step=300,
            epochs=3,
        ),
        max_tokens=256,
        max_minutes=60,
    )
    token = world.sign(world.claims(max_minutes=60))

    assert world.train(token, threads=2) == Exit.DONE

    report = world.report()
    assert set(report.selftests.values()) == {"pass"}
    assert report.metrics["eval_loss_after"] < report.metrics["eval_loss_before"] / 2
    merged = world.root / "merged"
    capfd.readouterr()
    where = ["--base", str(real_base_model), "--adapter", str(world.out / "adapter")]
    assert main(["export", *where, "--out", str(merged)]) == Exit.DONE
    out, err = capfd.readouterr()
    assert err == ""
    assert float(json.loads(out)["kl_merged"]) < 1e-2
    assert "officer" in answer(merged, tokenizer, "Who may approve job 99?")


def answer(directory, tokenizer, question):
    """Answer greedily, and insist that the model ends by itself."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    new = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False
    )[0, ids.shape[1] :]
    assert int(new[-1]) == tokenizer.eos_token_id
    return tokenizer.decode(new.tolist())
