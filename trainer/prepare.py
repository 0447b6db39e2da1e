"""From rows to packs, with a ledger that accounts for every row and token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.contract import JobSpec
from trainer.intake import Row
from trainer.order import num_steps, step_packs
from trainer.pack import (
    Fitted,
    Pack,
    capacity,
    fit,
    num_targets,
    num_tokens,
    packs_per_step,
    plan_packs,
)
from trainer.refusal import Reason, RefusedError
from trainer.render import PROBE, Rendered, Tokenizer, render
from trainer.split import split


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run will do.

    Attributes:
        train: Packs of one epoch.
        held_out: Packs for evaluation, never trained on.
        packs_per_step: Packs that one update takes.
        num_steps: Updates of the whole run.
        ledger: Counts. `rows` = rows_train + rows_eval + rows_dropped; `tokens` = tokens_train +
            tokens_eval + tokens_dropped + tokens_truncated; all are of one epoch.
    """

    train: list[Pack]
    held_out: list[Pack]
    packs_per_step: int
    num_steps: int
    ledger: dict[str, int]


def prepare(
    spec: JobSpec, rows: Sequence[Row], tokenizer: Tokenizer, poll: Callable[[], None]
) -> Prepared:
    """Render, split, fit and pack; deterministic in its arguments.

    Raises:
        RefusedError: when a row, the template or the split is not fit for training.
    """
    render(Row("probe", "probe", "en", PROBE), tokenizer)
    train_rows, eval_rows = split(rows, seed=spec.seed, eval_permille=spec.eval_permille)
    rendered = _render_all(train_rows, tokenizer, poll)
    rendered_eval = _render_all(eval_rows, tokenizer, poll)
    train = fit(rendered, max_tokens=spec.max_tokens, overlong=spec.overlong)
    held_out = fit(rendered_eval, max_tokens=spec.max_tokens, overlong=spec.overlong)
    if not train.rows or (eval_rows and not held_out.rows):
        raise RefusedError(
            Reason.DATASET_OVERLONG,
            f"one side of the split has no row within {spec.max_tokens} tokens; raise max_tokens",
        )
    size = capacity(
        train.rows,
        max_tokens=spec.max_tokens,
        tokens_per_step=spec.optimizer.tokens_per_step,
    )
    packs = plan_packs(train.rows, capacity=size)
    eval_size = capacity(held_out.rows, max_tokens=spec.max_tokens, tokens_per_step=size)
    per_step = packs_per_step(packs, tokens_per_step=spec.optimizer.tokens_per_step)
    prepared = Prepared(
        train=packs,
        held_out=plan_packs(held_out.rows, capacity=eval_size),
        packs_per_step=per_step,
        num_steps=num_steps(
            num_packs=len(packs),
            packs_per_step=per_step,
            epochs=spec.optimizer.epochs,
            max_steps=spec.max_steps,
        ),
        ledger={},
    )
    prepared.ledger.update(_ledger(prepared, [train, held_out], len(rows)))
    return prepared


def _render_all(
    rows: Sequence[Row], tokenizer: Tokenizer, poll: Callable[[], None]
) -> list[Rendered]:
    rendered = []
    for row in rows:
        poll()
        rendered.append(render(row, tokenizer))
    return rendered


def _ledger(prepared: Prepared, sides: Sequence[Fitted], rows: int) -> dict[str, int]:
    train, held_out = sides
    tokens_dropped = sum(side.tokens_dropped for side in sides)
    tokens_truncated = sum(side.tokens_truncated for side in sides)
    kept = num_tokens(prepared.train) + num_tokens(prepared.held_out)
    return {
        "rows": rows,
        "rows_train": len(train.rows),
        "rows_eval": len(held_out.rows),
        "rows_dropped": sum(side.rows_dropped for side in sides),
        "rows_truncated": sum(side.rows_truncated for side in sides),
        "tokens": kept + tokens_dropped + tokens_truncated,
        "tokens_train": num_tokens(prepared.train),
        "tokens_eval": num_tokens(prepared.held_out),
        "tokens_dropped": tokens_dropped,
        "tokens_truncated": tokens_truncated,
        "targets_train": num_targets(prepared.train),
        "targets_eval": num_targets(prepared.held_out),
        "packs_train": len(prepared.train),
        "packs_eval": len(prepared.held_out),
        "packs_per_step": prepared.packs_per_step,
        "steps_planned": prepared.num_steps,
    }


def planned_work(prepared: Prepared, spec: JobSpec) -> tuple[int, int]:
    """Return (tokens, targets) that all planned updates train on."""
    seen = step_packs(
        seed=spec.seed,
        cursor=0,
        num_packs=len(prepared.train),
        packs_per_step=prepared.num_steps * prepared.packs_per_step,
        epochs=spec.optimizer.epochs,
    )
    packs = [prepared.train[index] for index in seen]
    return num_tokens(packs), num_targets(packs)
