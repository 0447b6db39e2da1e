"""Where a run stands, `placet.progress/1`: all its counters, and nothing that can be derived.

{"cursor":80,"elapsed_ms":61000,"eval_loss_before":"2.912000","format":"placet.progress/1",
 "joules":null,"loss_curve":[[1,"3.010000"],…],"num_segments":1,"started_at":"2026-…Z",
 "step":20,"targets":9021,"tokens":36120,"tokens_evaluated":4021}
"""

from dataclasses import asdict, dataclass, field
from decimal import Decimal

from trainer.strict import Reader, as_json, canonical, parse

FORMAT = "placet.progress/1"


@dataclass(slots=True, kw_only=True)
class Progress:
    """The counters of a run, over all its segments.

    Attributes:
        started_at: When the first segment started.
        num_segments: Times the process was started.
        step: Updates done.
        cursor: Packs seen (`trainer.order`).
        tokens: Tokens trained on, prompts included.
        targets: Supervised tokens trained on.
        tokens_evaluated: Tokens that went through a forward pass only.
        elapsed_ms: Milliseconds in earlier segments.
        joules: Energy in earlier segments; None when it is unknown for one of them.
        eval_loss_before: Held-out loss of the base model, nats per supervised token.
        loss_curve: (step, training loss before that update).
    """

    started_at: str
    num_segments: int = 1
    step: int = 0
    cursor: int = 0
    tokens: int = 0
    targets: int = 0
    tokens_evaluated: int = 0
    elapsed_ms: int = 0
    joules: Decimal | None = Decimal(0)
    eval_loss_before: Decimal | None = None
    loss_curve: list[tuple[int, Decimal]] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """Write the canonical bytes."""
        members = asdict(self)
        members["format"] = FORMAT
        for name in ("joules", "eval_loss_before"):
            members[name] = None if members[name] is None else f"{members[name]:f}"
        members["loss_curve"] = [[step, f"{loss:f}"] for step, loss in self.loss_curve]
        return canonical(as_json(members))

    @staticmethod
    def from_bytes(data: bytes) -> "Progress":
        """Read what `to_bytes` wrote.

        Raises:
            ContractError: when a member is missing, unknown or out of range.
        """
        r = Reader(parse(data, max_bytes=16_777_216), "progress")
        r.constant("format", FORMAT)
        curve = []
        for item in r.items("loss_curve", most=1_000_000):
            step, loss = item if isinstance(item, list) and len(item) == 2 else (None, None)
            point = Reader({"step": step, "loss": loss}, "progress.loss_curve")
            curve.append((point.integer("step", 1), point.decimal("loss", "-1e29", "1e29")))
        progress = Progress(
            started_at=r.instant("started_at"),
            num_segments=r.integer("num_segments", 1),
            step=r.integer("step", 0),
            cursor=r.integer("cursor", 0),
            tokens=r.integer("tokens", 0),
            targets=r.integer("targets", 0),
            tokens_evaluated=r.integer("tokens_evaluated", 0),
            elapsed_ms=r.integer("elapsed_ms", 0),
            joules=None if r.nothing("joules") else r.decimal("joules", "0", "1e29"),
            eval_loss_before=None
            if r.nothing("eval_loss_before")
            else r.decimal("eval_loss_before", "-1e29", "1e29"),
            loss_curve=curve,
        )
        r.close()
        return progress
