"""Commands as processes and in-process: plan, export, inspect-base, SIGTERM, quiet output."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainer.__main__ import main
from trainer.contract import FilesManifest, canonical, digest
from trainer.meter import EnergyReading, Size, architecture_flop, executed_flop
from trainer.plan import DEVICES, has_native_bf16, memory_terms, plan, read_shape, render_text
from trainer.refusal import Exit

ROOT = Path(__file__).parents[2]


def never():
    """Poll that never stops."""


def command(*arguments):
    return [sys.executable, "-P", "-m", "trainer", *arguments]


def environment():
    return os.environ | {"PYTHONPATH": str(ROOT)}


def test_sigterm_ends_with_75_and_the_next_start_finishes(world):
    world.change(optimizer=replace(world.spec.optimizer, epochs=40))
    world.write_inputs()
    process = subprocess.Popen(
        command(*world.arguments()),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 240
    while not any(e["kind"] == "step" for e in world.events()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)

    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)

    assert process.returncode == Exit.INTERRUPTED
    assert out == ""
    assert err == "interrupted: start it again with the same permit to go on\n"
    assert json.loads((world.scratch / "report.json").read_bytes())["status"] == "interrupted"
    assert world.train() == Exit.DONE
    assert world.report().num_segments == 2


def test_the_plan_tells_what_the_run_then_does(world):
    document = plan(world.spec.to_bytes(), device="cpu", scratch=world.root, poll=never)
    assert world.train() == Exit.DONE
    report = world.report()

    assert document["num_steps"] == report.ledger["steps_done"]
    assert document["tokens"] == report.ledger["tokens_trained"]
    assert document["targets"] == report.ledger["targets_trained"]
    assert document["flop"]["executed"] == f"{report.flop.executed:f}"
    assert document["flop"]["architecture"] == f"{report.flop.architecture:f}"
    assert str(document["num_parameters"]) == report.base_model["num_parameters"]
    assert str(document["num_adapter_parameters"]) == report.base_model["num_adapter_parameters"]
    assert canonical(document)
    told = next(e for e in world.events() if e["kind"] == "plan")
    assert told["num_steps"] == document["num_steps"]
    assert "num_steps" in render_text(document)


def test_plan_prints_json_and_nothing_else(world, capfd):
    world.write_inputs()

    assert main(["plan", "--spec", str(world.root / "spec.json"), "--json"]) == Exit.DONE

    out, err = capfd.readouterr()
    assert json.loads(out)["format"] == "placet.plan/1"
    assert err == ""
    assert main(["plan", "--spec", str(world.root / "permit.jwt")]) == Exit.REFUSED
    assert capfd.readouterr().err.startswith("refused: ")


def test_memory_of_an_8b_model_is_near_the_published_figure(tmp_path):
    shape = read_shape(write_headers(tmp_path), rank=16)

    terms = memory_terms(shape, precision="bf16", pack_tokens=4096)

    assert shape.size.total == 8_030_261_248
    assert shape.size.adapter == 41_943_040
    assert 40 < terms["total"] / 2**30 < 46  # 43 GB for 4,096 tokens without recomputation
    assert terms["total"] < DEVICES["l40s"].memory_bytes


def write_headers(directory):
    """Write Llama-3-8B's config and a safetensors header without its weights."""
    h, f, kv, v = 4096, 14336, 1024, 128256
    shapes = {"model.embed_tokens.weight": [v, h], "lm_head.weight": [v, h]}
    for i in range(32):
        name = f"model.layers.{i}."
        shapes |= {
            f"{name}self_attn.q_proj.weight": [h, h],
            f"{name}self_attn.k_proj.weight": [kv, h],
            f"{name}self_attn.v_proj.weight": [kv, h],
            f"{name}self_attn.o_proj.weight": [h, h],
            f"{name}mlp.gate_proj.weight": [f, h],
            f"{name}mlp.up_proj.weight": [f, h],
            f"{name}mlp.down_proj.weight": [h, f],
            f"{name}input_layernorm.weight": [h],
            f"{name}post_attention_layernorm.weight": [h],
        }
    shapes["model.norm.weight"] = [h]
    header = json.dumps({name: {"shape": shape} for name, shape in shapes.items()}).encode()
    (directory / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    config = {
        "num_hidden_layers": 32,
        "hidden_size": h,
        "intermediate_size": f,
        "vocab_size": v,
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def test_flop_follow_the_two_conventions():
    size = Size(total=1000, body=700, head=200, adapter=10)

    assert architecture_flop(size, tokens=5) == 30_000
    assert (
        executed_flop(size, tokens=5, targets=2, tokens_evaluated=3, targets_evaluated=1)
        == 5 * (2800 + 60) + 2 * 800 + 3 * 1420 + 400
    )


def test_energy_is_read_from_counters_or_unknown(tmp_path):
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "energy_uj").write_text("900")
    (zone / "max_energy_range_uj").write_text("999")
    first = EnergyReading.take(tmp_path)
    (zone / "energy_uj").write_text("100")
    wrapped = EnergyReading.take(tmp_path)

    assert float(first.joules_until(wrapped)) == pytest.approx(200e-6)
    assert first.joules_until(first) is None
    nothing = EnergyReading.take(tmp_path / "absent")
    assert nothing.joules_until(nothing) is None
    assert nothing.method.startswith("unknown")


def test_native_bf16_is_read_from_the_processor_flags(tmp_path):
    (tmp_path / "new").write_text("flags : fma avx512_bf16 amx_bf16")
    (tmp_path / "old").write_text("flags : fma avx2")

    assert has_native_bf16(tmp_path / "new")
    assert not has_native_bf16(tmp_path / "old")
    assert not has_native_bf16(tmp_path / "absent")


def test_inspect_base_prints_the_digest_that_a_specification_names(world, capfd):
    assert main(["inspect-base", str(world.base)]) == Exit.DONE

    answer = json.loads(capfd.readouterr().out)
    assert answer["digest"] == world.spec.base_model_digest
    manifest = FilesManifest.from_bytes(canonical(answer["manifest"]))
    assert digest(manifest.to_bytes()) == answer["digest"]


def test_export_merges_keeps_tokenizer_bytes_and_measures(world, capfd):
    assert world.train() == Exit.DONE
    out = world.root / "merged"
    arguments = ["export", "--base", str(world.base), "--adapter", str(world.out / "adapter")]
    capfd.readouterr()

    assert main([*arguments, "--out", str(out)]) == Exit.DONE

    report = json.loads(capfd.readouterr().out)
    assert float(report["kl_merged"]) < 1e-6 < float(report["kl_adapter"])
    assert report["dtype"] == "fp32"
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (out / name).read_bytes() == (world.base / name).read_bytes()
    assert main([*arguments, "--out", str(out)]) == Exit.FAILED  # it exists


def test_an_adapter_that_rounding_would_swallow_is_refused(world, capfd):
    assert world.train() == Exit.DONE
    path = world.out / "adapter/adapter_model.safetensors"
    tensors = load_file(path)
    save_file({k: v * 1e-3 if "lora_B" in k else v for k, v in tensors.items()}, path)
    out = world.root / "merged"
    capfd.readouterr()

    where = ["--base", str(world.base), "--adapter", str(path.parent), "--out", str(out)]
    code = main(["export", *where, "--dtype", "bf16"])

    assert code == Exit.REFUSED
    assert "differs from the adapter" in capfd.readouterr().err
    assert not out.exists()


def test_equal_runs_have_equal_artefacts(make_world):
    one, two = make_world("one"), make_world("two")
    assert one.train() == two.train() == Exit.DONE

    assert one.report().artefacts == two.report().artefacts


def test_torch_is_deterministic_after_a_run(world):
    assert world.train() == Exit.DONE

    assert torch.are_deterministic_algorithms_enabled()
