"""Documents: strict parsing, canonical bytes, clean import."""

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract import (
    ContractError,
    DatasetManifest,
    FilesManifest,
    JobSpec,
    PermitClaims,
    RunReport,
    canonical,
    digest,
    parse,
)
from trainer.report import Artefact, Energy, Flop

GOLDEN = Path(__file__).parents[1] / "golden" / "trainer"
ROOT = Path(__file__).parents[2]
SPEC = (
    '{"format":"placet.train/1","seed":17,'
    '"base_model":{"uri":"file:///models/x","digest":"sha256:' + "a" * 64 + '"},'
    '"dataset":{"manifest_uri":"s3://ward/set/manifest.json","digest":"sha256:' + "b" * 64 + '"},'
    '"split":{"eval_permille":100},"max_tokens":512,"overlong":"refuse",'
    '"adapter":{"kind":"lora","rank":16,"alpha":32,"dropout":"0","targets":"all-linear"},'
    '"optimizer":{"learning_rate":"0.0002","schedule":"cosine","warmup_permille":30,'
    '"clip_norm":"1.0","weight_decay":"0","tokens_per_step":2048,"epochs":2},'
    '"precision":"bf16","checkpoint":{"every_steps":20,"keep":3},"limits":{"max_minutes":60}}'
)


def edited(path, value):
    document = json.loads(SPEC)
    *parents, last = path.split(".")
    inner = document
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return json.dumps(document).encode()


def test_contract_loads_the_standard_library_only():
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); "
        "import trainer.contract; print(*sorted({m.partition('.')[0] for m in "
        "set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )

    out = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], check=True, capture_output=True, text=True
    )

    assert out.stdout.split() == ["trainer"]


def test_a_specification_round_trips_and_absent_max_steps_is_no_limit():
    spec = JobSpec.from_bytes(SPEC.encode())

    assert spec.max_steps == 0
    assert JobSpec.from_bytes(spec.to_bytes()) == spec
    assert b'"learning_rate":"0.0002"' in spec.to_bytes()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", -1),
        ("seed", True),
        ("seed", "17"),
        ("surprise", 1),
        ("adapter.surprise", 1),
        ("adapter.rank", 0),
        ("adapter.dropout", 0),
        ("adapter.dropout", "0.51"),
        ("adapter.targets", "q_proj"),
        ("optimizer.learning_rate", "2e-4"),
        ("optimizer.learning_rate", "NaN"),
        ("optimizer.schedule", "linear"),
        ("precision", "fp16"),
        ("overlong", "ignore"),
        ("max_tokens", 10**9),
        ("base_model.uri", "https://models.example/x"),
        ("base_model.uri", "file:///models/../etc"),
        ("base_model.digest", "sha256:" + "A" * 64),
        ("limits.max_minutes", 0),
        ("limits.max_steps", -1),
        ("format", "placet.train/2"),
    ],
)
def test_a_specification_with_a_wrong_member_is_refused_by_name(path, value):
    with pytest.raises(ContractError, match=path.rpartition(".")[2].split("_", maxsplit=1)[0]):
        JobSpec.from_bytes(edited(path, value))


@pytest.mark.parametrize(
    "data",
    [b'{"a":1,"a":2}', b"1.5", b"NaN", b"1e3", b"\xff", b"9007199254740992", b"[" * 40 + b"]" * 40],
)
def test_bytes_outside_the_subset_are_refused(data):
    with pytest.raises(ContractError):
        parse(data)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(TREES)
def test_canonical_bytes_parse_back_and_are_stable(value):
    data = canonical(value)

    assert parse(data) == value
    assert canonical(parse(data)) == data


def test_canonical_sorts_by_utf16_code_units():
    assert canonical({"\ufb33": 1, "\U0001f600": 2, "a": 3}).decode() == (
        '{"a":3,"\U0001f600":2,"\ufb33":1}'
    )


@pytest.mark.parametrize("value", [1.5, {1: 2}, 2**53, "\ud800"])
def test_canonical_refuses_what_json_cannot_say_exactly(value):
    with pytest.raises(ContractError):
        canonical(value)


def test_manifests_refuse_disorder_and_escape():
    entry = {"digest": digest(b""), "size_bytes": 0}
    for paths in (["b", "a"], ["a", "a"], ["../a"], ["/a"], ["a/./b"]):
        files = [entry | {"path": path} for path in paths]
        with pytest.raises(ContractError):
            FilesManifest.from_bytes(canonical({"format": "placet.files/1", "files": files}))
    item = {"uri": "file:///a", "digest": digest(b""), "size_bytes": 1, "rows": 1}
    document = {
        "format": "placet.dataset/1",
        "name": "n",
        "licence": "l",
        "rows_format": "chat-jsonl",
        "objects": [item],
    }
    good = DatasetManifest.from_bytes(canonical(document))
    assert DatasetManifest.from_bytes(good.to_bytes()) == good
    with pytest.raises(ContractError):
        DatasetManifest.from_bytes(canonical(document | {"objects": [item, item]}))


def test_a_manifest_says_how_its_rows_are_written():
    item = {"uri": "file:///a", "digest": digest(b""), "size_bytes": 1, "rows": 1}
    members = {"format": "placet.dataset/1", "name": "n", "licence": "l", "objects": [item]}
    for known in ("chat-jsonl", "jsonl", "csv", "parquet", "text"):
        data = canonical(members | {"rows_format": known})
        manifest = DatasetManifest.from_bytes(data)
        assert (manifest.rows_format, manifest.to_bytes()) == (known, data)
    for other in ({}, {"rows_format": "xlsx"}, {"rows_format": None}):
        with pytest.raises(ContractError, match="rows_format"):
            DatasetManifest.from_bytes(canonical(members | other))


def test_permit_claims_round_trip(world):
    claims = world.claims()

    assert PermitClaims.from_claims(claims).to_claims() == claims


REPORT = RunReport(
    status="succeeded",
    reason=None,
    run_id="run_1",
    permit_id="prm_1",
    job_id="job_1",
    spec_digest=digest(b"spec"),
    started_at="2026-11-30T10:00:00Z",
    finished_at="2026-11-30T10:01:10Z",
    num_segments=1,
    seed=17,
    ledger={"rows": 360, "rows_train": 324},
    metrics={"eval_loss_after": Decimal("1.204000")},
    loss_curve=((1, Decimal("3.010000")), (2, Decimal("2.870000"))),
    flop=Flop(architecture=Decimal(29 * 10**18), executed=Decimal(17 * 10**18), hardware=None),
    energy=Energy(kwh=None, method="unknown: this process can read no energy counter"),
    environment={"python": "3.11.7"},
    dataset={"digest": digest(b"dataset")},
    base_model={"digest": digest(b"base")},
    artefacts={"adapter/a.bin": Artefact(digest=digest(b""), size_bytes=0)},
    selftests={"packing_leak": "pass"},
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("spec.json", JobSpec.from_bytes(SPEC.encode()).to_bytes()),
        ("report.json", REPORT.to_bytes()),
    ],
)
def test_canonical_bytes_are_the_golden_ones(name, data):
    path = GOLDEN / name
    if os.environ.get("PLACET_GOLDEN") == "1":
        path.write_bytes(data)

    assert data == path.read_bytes()


def test_a_report_round_trips_and_never_says_zero_for_unknown_energy():
    assert RunReport.from_bytes(REPORT.to_bytes()) == REPORT
    text = REPORT.to_bytes().replace(b'"kwh":null', b'"kwh":"0"')
    with pytest.raises(ContractError, match="kwh"):
        RunReport.from_bytes(text)
