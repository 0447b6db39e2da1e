"""`placet cost estimate` and `placet cost compare`, as people and machines see them."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from string import Template

import pytest
from sources import ROOT

from policies.commands.cost import add_commands
from policies.load import REFERENCE

GOLDEN = ROOT / "tests" / "golden" / "policies"
JOB = ROOT / "service" / "demo" / "examples" / "job.yaml"
ASK = ("estimate", "--params", "8B", "--method", "lora", "--tokens", "20M")


@pytest.fixture
def ask(capsys):
    """Run `placet cost …`; return the status, what it said and what it complained."""

    def asked(*words):
        parser = argparse.ArgumentParser()
        add_commands(parser.add_subparsers())
        options = parser.parse_args(["cost", *map(str, words)])
        status = options.handler(options)
        said = capsys.readouterr()
        return status, said.out, said.err

    return asked


@pytest.fixture
def job(tmp_path):
    """Write the demo's job document, with some of its lines replaced."""

    def written(**changes):
        text = Template(JOB.read_text("utf-8")).substitute(
            dataset="ds_1", base_model="bm_1", steps=12, precision="bf16"
        )
        for old, new in changes.items():
            text = "\n".join(
                line if line.strip().split(":")[0] != old else line.split(":")[0] + f": {new}"
                for line in text.splitlines()
            )
        path = tmp_path / "job.yaml"
        path.write_text(text, "utf-8")
        return path

    return written


# --- golden -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cost-estimate.txt", ASK),
        (
            "cost-estimate-70b.txt",
            ("estimate", "--model", "llama-3-70b", "--method", "qlora", "--tokens", "50M",
             "--provider", "ovhcloud", "--rank", "16", "--max-tokens", "8192"),
        ),
        ("cost-compare.txt", ("compare",)),
        ("cost-estimate.json", (*ASK, "--flavor", "l40s-1-gpu", "--json")),
        ("cost-compare.json", ("compare", "--gpu-hours", "2000", "--json")),
    ],
)  # fmt: skip
def test_the_answers_stay_as_they_are(ask, name, words):
    status, said, _ = ask(*words)
    path = GOLDEN / name
    if os.environ.get("PLACET_GOLDEN"):
        path.write_text(said, "utf-8")

    assert status == 0
    assert said == path.read_text("utf-8")


# --- estimate ---------------------------------------------------------------------------------


def test_the_recommended_flavor_is_marked_once(ask):
    _, said, _ = ask(*ASK)

    marked = [line for line in said.splitlines() if line.startswith("*  ")]
    assert len(marked) == 1
    assert "h100-1-gpu" in marked[0]


def test_unverified_rows_are_named_with_their_days(ask):
    _, said, _ = ask(*ASK)
    _, text, _ = ask(*ASK, "--json")

    assert "2026-10-06  prices: ovhcloud/h100-1-gpu" in said
    assert "2026-12-01  estimates: utilisation_slow_permille" in said
    rows = json.loads(text)["rows"]
    assert {row["table"] for row in rows} == {"flavors", "prices", "estimates"}
    assert all(row["source"] and row["checked_on"] and row["confidence"] for row in rows)


def test_an_own_price_is_no_longer_unverified(ask, tmp_path):
    _, said, _ = ask(*ASK, "--flavor", "l4-1-gpu", "--set", "prices.l4-1-gpu=100000")
    assert "prices:" not in said

    path = tmp_path / "own.yaml"
    path.write_text(
        'table: prices\ndefaults: {provider: ovhcloud, currency: EUR, checked_on: "2026-11-01",'
        " confidence: declared, source: our contract, billing_step_s: 60}\n"
        "rows:\n  - {flavor: l4-1-gpu, price_micros_per_hour: 100000}\n"
        "  - {provider: own-site, flavor: l4, price_micros_per_hour: 1}\n",
        "utf-8",
    )
    _, text, _ = ask(*ASK, "--prices", path, "--json")
    answer = json.loads(text)
    assert answer["recommended"] == {"provider": "own-site", "flavor": "l4", "gpus": 2}
    prices = {row["key"]: row for row in answer["rows"] if row["table"] == "prices"}
    assert prices["ovhcloud/l4-1-gpu"]["checked_on"] == "2026-11-01"
    assert prices["ovhcloud/h100-1-gpu"]["confidence"] == "unverified"


def test_a_job_document_says_how_and_where(ask, job):
    path = job(provider="ovhcloud", flavor="l40s-1-gpu", gpus=1, epochs=3, max_tokens=512)

    _, text, _ = ask("estimate", path, "--model", "mistral-7b", "--tokens", "20M", "--json")

    answer = json.loads(text)
    assert answer["asked"] == {
        "parameters": 7_241_732_096, "method": "lora", "rank": 16, "precision": "bf16",
        "row_tokens": 512, "tokens": 60_000_000, "checkpointing": None, "gpus": 1,
        "max_minutes": 30, "budget_cents": 500,
    }  # fmt: skip
    assert [each["flavor"] for each in answer["options"]] == ["l40s-1-gpu"]
    assert answer["assumed"] == []
    assert len(answer["notes"]) == 2
    assert "the job would be stopped" in answer["notes"][0]
    assert "the budget is 500" in answer["notes"][1]


def test_a_job_without_gpus_is_shown_every_flavor(ask, job):
    status, said, _ = ask("estimate", job(), "--model", "smollm2-135m", "--tokens", "100k")

    assert status == 0
    assert "assumed: a GPU flavor, not `cpu`" in said
    assert "l4-1-gpu" in said


def test_facts_need_nothing_beside_them(ask, tmp_path):
    path = tmp_path / "facts.json"
    base = {
        "parameters": 8_030_261_248, "layers": 32, "hidden_size": 4096,
        "intermediate_size": 14336, "vocabulary_size": 128_256, "attention_heads": 32,
        "kv_heads": 8,
    }  # fmt: skip
    facts = {
        "format": "placet.facts/1", "job": {"method": "lora"}, "base_model": base,
        "training": {"tokens": 20_000_000, "rank": 16, "max_tokens": 4096, "precision": "bf16",
                     "gradient_checkpointing": False},
        "compute": {"provider": "ovhcloud", "flavor": "h100-1-gpu", "gpus": 1},
    }  # fmt: skip
    path.write_text(json.dumps(facts), "utf-8")

    _, text, _ = ask("estimate", path, "--json")

    (option,) = json.loads(text)["options"]
    assert (option["minutes"]["slow"], option["cost_cents"]["slow"]) == (121, 565)
    assert option["vram_needed_mib"] == 44412


def test_a_models_own_config_is_read(ask, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        '{"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,'
        ' "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,'
        ' "tie_word_embeddings": true, "rope_theta": 1e4}',
        "utf-8",
    )

    _, text, _ = ask("estimate", "--config", path, "--tokens", "1M", "--json")

    assert json.loads(text)["asked"]["parameters"] == 134_479_872


@pytest.mark.parametrize("words", [("--gpus", "5"), ("--from-scratch",)])
def test_more_than_four_gpus_or_pre_training_is_referred(ask, words):
    status, said, _ = ask(*ASK, *words)
    _, text, _ = ask(*ASK, *words, "--json")

    assert status == 0
    assert "needs a solutions architect" in said or "need a solutions architect" in said
    answer = json.loads(text)
    assert answer["options"] == []
    assert answer["recommended"] is None
    assert answer["referral"]


def test_four_gpus_are_not_referred(ask):
    _, text, _ = ask(*ASK, "--gpus", "4", "--json")

    assert json.loads(text)["referral"] is None


def test_recomputation_is_chosen_where_it_is_needed_unless_said(ask):
    one = (*ASK, "--flavor", "l40s-1-gpu", "--gpus", "1", "--json")
    chosen, kept, again = (
        json.loads(ask(*one, *words)[1])["options"][0]
        for words in ((), ("--no-checkpointing",), ("--checkpointing",))
    )

    assert (chosen["checkpointing"], chosen["fits"]) == (True, True)
    assert (kept["checkpointing"], kept["fits"]) == (False, False)
    assert again == chosen


def test_what_is_not_known_is_said(ask):
    status, said, _ = ask(*ASK, "--flavor", "ai1-1-gpu")

    assert status == 0
    assert "unknown" in said
    assert "none is recommended" in said


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ((), "more needs a solutions architect"),
        (("--gpus", "1"), "with so many GPUs and with what was said"),
    ],
)
def test_what_fits_nowhere_is_said_and_not_costed(ask, words, note):
    status, said, _ = ask(
        "estimate", "--model", "llama-3-70b", "--method", "full", "--tokens", "1M", *words
    )

    assert status == 0
    assert "it fits none of them" in said
    assert note in said
    rows = [line.split() for line in said.splitlines() if line.endswith("-")]
    assert len(rows) == 16
    assert all(row[-3:] == ["-", "-", "-"] for row in rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("estimate",), "--tokens"),
        (("estimate", "--tokens", "20M"), "which base model"),
        (("estimate", "--tokens", "0", "--params", "8B"), "--tokens: expected a whole number"),
        (("estimate", "--tokens=-5", "--params", "8B"), "--tokens: expected a whole number"),
        (("estimate", "--tokens", "9999T", "--params", "8B"), "2^53-1"),
        (("estimate", "--tokens", "9000T", "--epochs", "9", "--params", "8B"), "all epochs"),
        (("estimate", "--tokens", "20M", "--params", "3B"), "mistral-7b (7.24B)"),
        (("estimate", "--tokens", "20M", "--model", "gpt"), "llama-3-8b"),
        ((*ASK, "--flavor", "b300"), "known: h100-1-gpu, a100-1-gpu"),
        ((*ASK, "--flavor", "ai1-1-cpu"), "no GPU flavor"),
        ((*ASK, "--provider", "nowhere"), "known: ovhcloud, own-site, scaleway"),
        ((*ASK, "--gpus", "0"), "--gpus"),
        ((*ASK, "--rank", "0"), "--rank"),
        ((*ASK, "--max-tokens", "x"), "--max-tokens"),
        ((*ASK, "--set", "nonsense"), "--set nonsense"),
        ((*ASK, "--set", "prices.b300=1"), "known: H100-1-80G"),
        ((*ASK, "--prices", "/nowhere/own.yaml"), "no such file"),
        (("estimate", "/nowhere/job.yaml"), "no such file"),
        ((*ASK, "--set", "estimates.gpus_max=0"), "expected 1 to 64"),
        ((*ASK, "--set", "estimates.gpus_max=1000000"), "expected 1 to 64"),
        (("compare", "--rent", "ovhcloud"), "PROVIDER/FLAVOR"),
        (("compare", "--rent", "ovhcloud/b300"), "known: ovhcloud/h100-1-gpu"),
        (("compare", "--rent", "own-site/l4"), "no price in EUR"),
        (("compare", "--own", "own-site/none"), "known"),
        (("compare", "--gpu-hours", "0"), "--gpu-hours"),
        (("compare", "--gpu-hours", "1,,2"), "--gpu-hours"),
        (("compare", "--set", "hosting.server_gpus=0"), "at least 1"),
        (("compare", "--set", "hosting.pue_permille=0"), "at least 1000"),
        (("compare", "--set", "prices.h100-1-gpu=0"), "no price in EUR"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_is_expected(ask, words, message):
    status, said, complained = ask(*words)

    assert (status, said) == (2, "")
    assert complained.startswith("placet cost: ")
    assert message in complained


def test_a_reference_folder_without_a_constant_is_refused(ask, tmp_path):
    shutil.copytree(REFERENCE, tmp_path / "reference")
    path = tmp_path / "reference" / "estimates.yaml"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join(line for line in lines if "runtime_mib" not in line), "utf-8")

    status, _, complained = ask(*ASK, "--reference", tmp_path / "reference")

    assert status == 2
    assert "no row 'runtime_mib'" in complained


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", "a: 1.5", "a: &x 1", "a: !!python/object:os.system x", "\x00",
        "a: " + "9" * 5000,
        "training: {rank: 0}", "compute: {gpus: -1}", "table: prices", "rows: 7",
        "table: none\nrows: []", "table: prices\nrows: [{}]", "table: prices\nrows: [7, {}]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["job", "--prices"])
def test_hostile_files_are_refused_or_say_nothing(ask, tmp_path, text, option):
    path = tmp_path / "hostile.yaml"
    path.write_text(text, "utf-8")
    given = ("estimate", path, *ASK[1:]) if option == "job" else (*ASK, "--prices", path)

    status, _, complained = ask(*given)

    assert status in {0, 2}
    assert (status == 2) is bool(complained)


@pytest.mark.parametrize(
    "text",
    ["table: prices\nrows: [7]", "table: prices\nrows: []\nmore: 1", "rows: []", "table: prices"],
)
def test_a_file_of_prices_is_read_whole_or_refused(ask, tmp_path, text):
    path = tmp_path / "own.yaml"
    path.write_text(text, "utf-8")

    assert ask(*ASK, "--prices", path)[0] == 2


# --- compare ----------------------------------------------------------------------------------


def test_a_dearer_server_pays_later_and_a_cheaper_rent_too(ask):
    def even(*words):
        return json.loads(ask("compare", *words, "--json")[1])["break_even_gpu_hours"]

    assert even() < even("--set", "hosting.server_price_cents=30000000")
    assert even() < even("--set", "prices.h100-1-gpu=2500000")
    assert even("--set", "prices.h100-1-gpu=100000") is None


def test_a_load_beyond_the_server_is_not_costed(ask):
    _, said, _ = ask("compare", "--gpu-hours", "9000")

    assert "beyond it" in said
    assert "25,200.00" in said


# --- installation -----------------------------------------------------------------------------


def test_it_needs_no_more_than_the_policies_extra():
    script = (
        "import sys; from policies.commands.cost import add_commands;"
        "print(*{'fastapi', 'httpx', 'torch', 'sqlmodel', 'pydantic', 'yaml', 'boto3'}"
        " & set(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert found.stdout.strip() == ""


def test_the_command_placet_brings_it(capsys):
    from service import cli

    assert cli.main(["cost", *ASK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flop_1e15"] == 964
    assert cli.main(["--json", "cost", "compare"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "placet.cost-comparison/1"
    for words in (["cost", "estimate"], ["cost", "compare"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--help"])
        assert ended.value.code == 0
        assert f"examples:\n  placet {' '.join(words)}" in capsys.readouterr().out
