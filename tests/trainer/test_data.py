"""From bytes to packs: digests, rendering, split, overlong policy, ledger."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.intake import Message, Row, inspect_directory, open_base_model, read_dataset
from trainer.order import num_steps, permutation, philox, step_packs
from trainer.pack import capacity, fit, num_tokens, plan_packs
from trainer.prepare import planned_work, prepare
from trainer.refusal import Reason, RefusedError
from trainer.render import Rendered, render
from trainer.split import is_held_out, split


def never():
    """Poll that never stops."""


def supervised_text(rendered, tokenizer):
    ids = [i for i, s in zip(rendered.ids, rendered.supervised, strict=True) if s]
    return tokenizer.decode(ids)


def test_a_changed_object_is_refused_before_its_rows_are_parsed(world):
    path = world.root / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-4] + b"xx}\n")

    with pytest.raises(RefusedError) as refusal:
        read_dataset(world.spec.dataset_manifest_uri, world.spec.dataset_digest, never)

    assert refusal.value.reason is Reason.DATASET_CHANGED


@pytest.mark.parametrize("change", [b"more", b""])
def test_a_longer_or_missing_object_is_refused(world, change):
    path = world.root / "rows.jsonl"
    data = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(data + change)

    with pytest.raises(RefusedError) as refusal:
        read_dataset(world.spec.dataset_manifest_uri, world.spec.dataset_digest, never)

    assert refusal.value.reason is Reason.DATASET_CHANGED


def test_a_changed_manifest_is_refused(world):
    path = world.root / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"tiny", b"tidy"))

    with pytest.raises(RefusedError) as refusal:
        read_dataset(world.spec.dataset_manifest_uri, world.spec.dataset_digest, never)

    assert refusal.value.reason is Reason.DATASET_CHANGED


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row | {"extra": 1},
        lambda row: row | {"messages": row["messages"][:1]},
        lambda row: row | {"messages": row["messages"][::-1]},
        lambda row: (
            row | {"messages": [*row["messages"][:1], {"role": "assistant", "content": " "}]}
        ),
        lambda row: row | {"id": "r001"},
        lambda row: {k: v for k, v in row.items() if k != "group"},
    ],
)
def test_a_row_that_breaks_its_format_is_refused(world, change):
    lines = (world.root / "rows.jsonl").read_bytes().splitlines()
    rows = [json.loads(line) for line in lines]
    world.write_dataset([change(rows[0]), *rows[1:]])

    with pytest.raises(RefusedError) as refusal:
        read_dataset(world.spec.dataset_manifest_uri, world.spec.dataset_digest, never)

    assert refusal.value.reason is Reason.DATASET_ROW


@pytest.mark.parametrize("rows_format", ["jsonl", "csv", "parquet", "text"])
def test_rows_of_another_format_are_refused_even_under_a_permit(world, rows_format):
    rows = [json.loads(line) for line in (world.root / "rows.jsonl").read_bytes().splitlines()]
    world.write_dataset(rows, rows_format=rows_format)

    with pytest.raises(RefusedError, match=f"got `{rows_format}`; write them as") as refusal:
        read_dataset(world.spec.dataset_manifest_uri, world.spec.dataset_digest, never)

    assert refusal.value.reason is Reason.DATASET_ROW


def test_a_base_model_with_one_other_byte_is_refused(world, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in world.base.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    expected = world.spec.base_model_digest
    assert open_base_model(copy.as_uri(), expected, tmp_path, never) == copy
    (copy / "extra.py").write_bytes(b"")

    with pytest.raises(RefusedError) as refusal:
        open_base_model(copy.as_uri(), expected, tmp_path, never)

    assert refusal.value.reason is Reason.BASE_MODEL_CHANGED


def test_a_link_in_a_base_model_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    with pytest.raises(OSError, match="link"):
        inspect_directory(tmp_path.as_uri(), never)


def test_only_answers_and_their_ends_are_supervised(tiny_tokenizer, row):
    turns = [
        ("system", "be brief"),
        ("user", "ask"),
        ("assistant", "one"),
        ("user", "more"),
        ("assistant", "two\nlines"),
    ]

    rendered = render(row(*turns), tiny_tokenizer)

    assert supervised_text(rendered, tiny_tokenizer) == "one<|im_end|>two\nlines<|im_end|>"
    assert rendered.supervised[-1]
    assert rendered.ids[-1] == tiny_tokenizer.eos_token_id == tiny_tokenizer.pad_token_id
    whole = tiny_tokenizer.apply_chat_template(
        [{"role": r, "content": c} for r, c in turns], tokenize=False
    )
    assert tiny_tokenizer.decode(list(rendered.ids)) == whole.rstrip("\n")


def test_an_injected_system_prompt_is_context_and_text_starts_once(tiny_tokenizer, row):
    rendered = render(row(("user", "ask"), ("assistant", "one")), tiny_tokenizer)

    assert "be kind" in tiny_tokenizer.decode(list(rendered.ids))
    assert supervised_text(rendered, tiny_tokenizer) == "one<|im_end|>"
    assert rendered.ids[0] == tiny_tokenizer.bos_token_id != rendered.ids[1]


class Templated:
    """A tokenizer with another template."""

    def __init__(self, inner, text):
        self._inner, self._text = inner, text

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt):
        assert not tokenize
        return self._text(conversation, add_generation_prompt)


@pytest.mark.parametrize(
    "text",
    [
        lambda m, _: "<|im_start|><|im_start|>" + "".join(x["content"] + "<|im_end|>" for x in m),
        lambda m, _: "".join(x["content"] for x in m),
        lambda m, _: f"{len(m)}" + "".join(x["content"] + "<|im_end|>" for x in m),
        lambda m, _: "".join("<|im_end|>" for x in m),
    ],
    ids=["two starts", "no end", "prefix changes", "answer left out"],
)
def test_a_template_that_would_teach_something_else_is_refused(tiny_tokenizer, row, text):
    conversation = row(("user", "ask"), ("assistant", "one"))

    with pytest.raises(RefusedError) as refusal:
        render(conversation, Templated(tiny_tokenizer, text))

    assert refusal.value.reason is Reason.TEMPLATE


def test_control_tokens_in_data_are_refused(tiny_tokenizer, row):
    with pytest.raises(RefusedError, match="control token"):
        render(row(("user", "a<|im_end|>b"), ("assistant", "one")), tiny_tokenizer)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10**6)), min_size=2, max_size=60))
def test_no_group_stands_on_both_sides(pairs):
    rows = [
        Row(f"r{i}", f"g{group}", "en", (Message("user", f"{i}"), Message("assistant", f"{text}")))
        for i, (group, text) in enumerate(pairs)
    ]
    sides = {is_held_out(r.group, seed=3, eval_permille=300) for r in rows}
    if len(sides) == 1:
        with pytest.raises(RefusedError):
            split(rows, seed=3, eval_permille=300)
        return

    train, held_out = split(rows, seed=3, eval_permille=300)

    assert {r.group for r in train} & {r.group for r in held_out} == set()
    assert len(train) + len(held_out) == len(rows)


def test_a_held_out_row_repeated_in_training_is_refused(row):
    names = [f"g{i}" for i in range(50)]
    inside = next(g for g in names if is_held_out(g, seed=1, eval_permille=200))
    outside = next(g for g in names if not is_held_out(g, seed=1, eval_permille=200))
    turns = ("user", "Ask"), ("assistant", "one  two")
    again = ("user", "ask "), ("assistant", "One two")
    rows = [row(*turns, row_id="a", group=inside), row(*again, row_id="b", group=outside)]

    with pytest.raises(RefusedError) as refusal:
        split(rows, seed=1, eval_permille=200)

    assert refusal.value.reason is Reason.DATASET_CONTAMINATED


def rendered(length, prompt, name):
    return Rendered(name, tuple(range(length)), (False,) * prompt + (True,) * (length - prompt))


def test_overlong_rows_follow_the_policy_and_are_counted():
    rows = [rendered(10, 4, "short"), rendered(30, 4, "long"), rendered(30, 25, "headless")]

    with pytest.raises(RefusedError) as refusal:
        fit(rows, max_tokens=20, overlong="refuse")
    dropped = fit(rows, max_tokens=20, overlong="drop")
    cut = fit(rows, max_tokens=20, overlong="truncate")

    assert refusal.value.reason is Reason.DATASET_OVERLONG
    assert (dropped.rows_dropped, dropped.tokens_dropped) == (2, 60)
    assert [r.row_id for r in cut.rows] == ["short", "long"]
    assert (cut.rows_dropped, cut.rows_truncated, cut.tokens_truncated) == (1, 1, 10)


def test_a_row_that_teaches_nothing_is_refused():
    with pytest.raises(RefusedError, match="teach nothing"):
        fit([rendered(10, 10, "mute")], max_tokens=20, overlong="truncate")


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 100))
def test_packs_hold_every_row_once_and_never_overflow(lengths, limit):
    rows = [rendered(n, 0, f"r{i:03d}") for i, n in enumerate(lengths)]
    size = capacity(rows, max_tokens=limit, tokens_per_step=80)

    packs = plan_packs(rows, capacity=size)

    names = sorted(d.row_id for pack in packs for d in pack.documents)
    assert names == [r.row_id for r in rows]
    assert all(pack.num_tokens <= size for pack in packs)
    assert packs == plan_packs(rows[::-1], capacity=size)


def test_philox_gives_the_published_words():
    ones = 0xFFFFFFFF
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == (
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    )


@given(st.integers(1, 20), st.integers(1, 7), st.integers(1, 4))
def test_the_cursor_visits_every_pack_once_an_epoch(packs, per_step, epochs):
    steps = num_steps(num_packs=packs, packs_per_step=per_step, epochs=epochs, max_steps=0)
    seen = []
    for step in range(steps):
        seen += step_packs(
            seed=5,
            cursor=step * per_step,
            num_packs=packs,
            packs_per_step=per_step,
            epochs=epochs,
        )

    for epoch in range(epochs):
        assert sorted(seen[epoch * packs : (epoch + 1) * packs]) == list(range(packs))
        assert seen[epoch * packs : (epoch + 1) * packs] == list(permutation(5, epoch, packs))


def test_the_ledger_accounts_for_every_row_and_token(world, tiny_tokenizer):
    _, rows = read_dataset(world.spec.dataset_manifest_uri, world.spec.dataset_digest, never)
    all_tokens = sum(len(render(r, tiny_tokenizer).ids) for r in rows)
    spec = replace(world.spec, max_tokens=90, overlong="truncate")

    for overlong in ("drop", "truncate"):
        prepared = prepare(replace(spec, overlong=overlong), rows, tiny_tokenizer, never)
        ledger = prepared.ledger

        assert ledger["rows"] == len(rows)
        assert ledger["rows"] == sum(ledger[f"rows_{k}"] for k in ("train", "eval", "dropped"))
        parts = ("train", "eval", "dropped", "truncated")
        assert ledger["tokens"] == all_tokens == sum(ledger[f"tokens_{k}"] for k in parts)
        assert ledger["tokens_dropped"] + ledger["tokens_truncated"] > 0


def test_planned_work_is_what_the_updates_see(world, tiny_tokenizer):
    _, rows = read_dataset(world.spec.dataset_manifest_uri, world.spec.dataset_digest, never)
    for max_steps in (0, 1, 3):
        spec = replace(world.spec, max_steps=max_steps)
        prepared = prepare(spec, rows, tiny_tokenizer, never)
        tokens, _ = planned_work(prepared, spec)

        seen = 0
        for step in range(prepared.num_steps):
            chosen = step_packs(
                seed=spec.seed,
                cursor=step * prepared.packs_per_step,
                num_packs=len(prepared.train),
                packs_per_step=prepared.packs_per_step,
                epochs=2,
            )
            seen += num_tokens([prepared.train[i] for i in chosen])
        assert tokens == seen
        assert max_steps or tokens == 2 * prepared.ledger["tokens_train"]
