"""The recipe: from verified bytes to an adapter with evidence, read from top to bottom.

(1) render, split, fit and pack the rows; tell the plan
(2) load the base, add adapters, run the self-tests
(3) go on from the newest checkpoint that verifies, if there is one
(4) evaluate the base on the held-out packs
(5) update by update, with a checkpoint every so often and when asked to stop
(6) evaluate again, store the adapter, compare what was stored
"""

import json
import shutil
import warnings
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import torch
from safetensors.torch import load_file

from trainer import selftest
from trainer.checkpoints import Checkpoint, Checkpoints
from trainer.contract import digest
from trainer.intake import Row
from trainer.loop import (
    evaluate,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    perplexity,
    update,
)
from trainer.meter import Size, architecture_flop, executed_flop
from trainer.model import (
    Adapted,
    adapt,
    adapter_tensors,
    frozen_digest,
    load_adapter_tensors,
    load_base,
    tensors_digest,
)
from trainer.model_files import load_tokenizer
from trainer.order import step_packs
from trainer.pack import num_tokens
from trainer.prepare import Prepared, planned_work, prepare
from trainer.refusal import Reason, RefusedError
from trainer.report import Artefact
from trainer.session import Session
from trainer.signals import StopRequestedError
from trainer.store import store_for
from trainer.strict import decimal_text

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


def fine_tune(session: Session, rows: Sequence[Row], base_dir: Path) -> None:
    """Train, evaluate and store; on return the session holds all that the report says.

    Raises:
        RefusedError: when the data, the template or a self-test is not fit for training.
        StopRequestedError: after a checkpoint, when asked to stop.
        DeadlineError: when the minutes are used up.
        DivergedError: when a loss is not finite.
        OSError: when the store fails.
    """
    device = _start_torch(session)
    tokenizer = load_tokenizer(base_dir)
    prepared = prepare(session.spec, rows, tokenizer, session.stop.poll)  # (1)
    session.ledger = prepared.ledger
    selftest.check_loss_mask(tokenizer)
    session.selftests["loss_mask"] = "pass"
    base = load_base(base_dir, precision=session.spec.precision, device=device)  # (2)
    adapted = adapt(base, session.spec.adapter, seed=session.spec.seed)
    _describe_base(session, adapted, base_dir)
    _tell_plan(session, prepared)
    _run_selftests(session, adapted, prepared)
    optimizer = make_optimizer(adapted, session.spec.optimizer)
    store = Checkpoints(session.output, run_id=session.claims.sub, spec_digest=session.spec_digest)
    found = store.newest() if session.resumed else None  # (3)
    if found is not None:
        load_adapter_tensors(adapted, found.adapter)
        load_optimizer_tensors(adapted, optimizer, found.optimizer)
        session.resume(found.progress)
    session.events.write(
        "start",
        device=session.device,
        threads=session.threads,
        step=session.progress.step,
        num_steps=prepared.num_steps,
        segment=session.progress.num_segments,
    )
    frozen = frozen_digest(adapted)
    try:
        _evaluate_before(session, adapted, prepared)  # (4)
        _update_all(session, adapted, optimizer, prepared, store)  # (5)
        _evaluate_after(session, adapted, prepared)  # (6)
    except StopRequestedError:
        _save(session, adapted, optimizer, store)
        raise
    if frozen_digest(adapted) != frozen:
        raise RefusedError(
            Reason.SELFTEST, "self-test frozen_base: a frozen tensor changed; discard this run"
        )
    session.selftests["frozen_base"] = "pass"
    _store_adapter(session, adapted)


def _start_torch(session: Session) -> torch.device:
    session.device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(session.threads)
    # Some CUDA kernels have no deterministic form; on a CPU equal input gives equal bits.
    torch.use_deterministic_algorithms(True, warn_only=session.device == "cuda")
    return torch.device(session.device)


def _describe_base(session: Session, adapted: Adapted, base_dir: Path) -> None:
    body, head = adapted.num_multiplied()
    session.size = Size(
        total=adapted.num_parameters(),
        body=body,
        head=head,
        adapter=adapted.num_adapter_parameters(),
    )
    config = json.loads((base_dir / "config.json").read_text(encoding="utf-8"))
    session.base_model = {
        "architecture": str(config.get("architectures", ["unknown"])[0]),
        "num_parameters": str(session.size.total),
        "num_adapter_parameters": str(session.size.adapter),
        "adapter_at_start": tensors_digest(adapter_tensors(adapted)),
        "tokenizer": digest((base_dir / "tokenizer.json").read_bytes()),
        "precision": session.spec.precision,
    }


def _tell_plan(session: Session, prepared: Prepared) -> None:
    size = session.size
    if size is None:
        return
    tokens, targets = planned_work(prepared, session.spec)
    flop = executed_flop(
        size,
        tokens=tokens,
        targets=targets,
        tokens_evaluated=2 * prepared.ledger["tokens_eval"],
        targets_evaluated=2 * prepared.ledger["targets_eval"],
    )
    session.events.write(
        "plan",
        step=0,
        num_steps=prepared.num_steps,
        tokens=tokens,
        ledger=prepared.ledger,
        flop_executed=flop,
        flop_architecture=architecture_flop(size, tokens=tokens),
    )


def _run_selftests(session: Session, adapted: Adapted, prepared: Prepared) -> None:
    documents = selftest.probe_documents(prepared.train)
    adapted.peft.eval()
    session.stop.poll()
    selftest.check_packing_leak(adapted, documents)
    session.selftests["packing_leak"] = "pass"
    session.stop.poll()
    selftest.check_head_rows(adapted, documents)
    session.selftests["head_rows"] = "pass"
    adapted.peft.train()


def _evaluate_before(session: Session, adapted: Adapted, prepared: Prepared) -> None:
    if not prepared.held_out or session.progress.eval_loss_before is not None:
        return
    loss = _evaluate(session, adapted, prepared, when="before")
    session.progress.eval_loss_before = loss


def _evaluate_after(session: Session, adapted: Adapted, prepared: Prepared) -> None:
    before = session.progress.eval_loss_before
    if not prepared.held_out or before is None:
        return
    after = _evaluate(session, adapted, prepared, when="after")
    session.metrics |= {
        "eval_loss_before": before,
        "eval_loss_after": after,
        "perplexity_before": Decimal(decimal_text(perplexity(before))),
        "perplexity_after": Decimal(decimal_text(perplexity(after))),
    }


def _evaluate(session: Session, adapted: Adapted, prepared: Prepared, *, when: str) -> Decimal:
    loss = Decimal(decimal_text(evaluate(adapted, prepared.held_out, session.stop.poll)))
    session.progress.tokens_evaluated += num_tokens(prepared.held_out)
    session.events.write(
        "eval",
        when=when,
        step=session.progress.step,
        num_steps=prepared.num_steps,
        loss=float(loss),
        perplexity=float(perplexity(loss)),
    )
    return loss


def _update_all(
    session: Session,
    adapted: Adapted,
    optimizer: torch.optim.AdamW,
    prepared: Prepared,
    store: Checkpoints,
) -> None:
    spec, progress = session.spec, session.progress
    while progress.step < prepared.num_steps:
        chosen = step_packs(
            seed=spec.seed,
            cursor=progress.cursor,
            num_packs=len(prepared.train),
            packs_per_step=prepared.packs_per_step,
            epochs=spec.optimizer.epochs,
        )
        done = update(
            adapted,
            optimizer,
            [prepared.train[index] for index in chosen],
            spec=spec.optimizer,
            step=progress.step,
            num_steps=prepared.num_steps,
            seed=spec.seed,
            poll=session.stop.poll,
        )
        progress.step += 1
        progress.cursor += len(chosen)
        progress.tokens += done.tokens
        progress.targets += done.targets
        progress.loss_curve.append((progress.step, Decimal(decimal_text(done.loss))))
        session.events.write(
            "step",
            step=progress.step,
            num_steps=prepared.num_steps,
            loss=done.loss,
            tokens=progress.tokens,
            lr=float(optimizer.param_groups[0]["lr"]),
            grad_norm=done.grad_norm,
            seconds=session.elapsed_ms() / 1000,
        )
        at_border = progress.step % spec.checkpoint_every_steps == 0
        if at_border and progress.step < prepared.num_steps:
            _save(session, adapted, optimizer, store)
    covered = "pass" if progress.step > 1 else "skipped: one update shows the gradients of B only"
    session.selftests["gradient_coverage"] = covered


def _save(
    session: Session, adapted: Adapted, optimizer: torch.optim.AdamW, store: Checkpoints
) -> None:
    checkpoint = Checkpoint(
        adapter=adapter_tensors(adapted),
        optimizer=optimizer_tensors(adapted, optimizer),
        progress=session.snapshot(),
    )
    uri = store.write(checkpoint, keep=session.spec.checkpoint_keep)
    session.events.write("checkpoint", step=session.progress.step, uri=uri)
    log = f"{session.output}/log/events.jsonl"
    store_for(log).put(log, session.events.read())


def _store_adapter(session: Session, adapted: Adapted) -> None:
    """Write PEFT's own format, with sorted members so that equal runs have equal digests."""
    folder = session.scratch / "adapter"
    shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT looks for the base on the network, and says so
        adapted.peft.save_pretrained(str(folder), save_embedding_layers=False)
    config = json.loads((folder / ADAPTER_FILES[0]).read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = session.spec.base_model_digest
    config["target_modules"] = sorted(config["target_modules"])
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / ADAPTER_FILES[0]).write_text(text, encoding="utf-8")
    stored = load_file(folder / ADAPTER_FILES[1])
    trained = {
        name.replace(".default.", "."): tensor for name, tensor in adapter_tensors(adapted).items()
    }
    if tensors_digest(stored) != tensors_digest(trained):
        raise RefusedError(
            Reason.SELFTEST, "self-test save_load: the stored adapter is not the trained one"
        )
    session.selftests["save_load"] = "pass"
    for name in ADAPTER_FILES:
        session.stop.poll()
        data = (folder / name).read_bytes()
        uri = f"{session.output}/adapter/{name}"
        store_for(uri).put(uri, data)
        session.artefacts[f"adapter/{name}"] = Artefact(digest=digest(data), size_bytes=len(data))
