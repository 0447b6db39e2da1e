"""The documents that cross the trainer's door; standard library only, so that a service can use it.

In go a `JobSpec` (what to do), a `DatasetManifest` and a `FilesManifest` (on which bytes,
`trainer.manifest`) and a permit (`PermitClaims`: the right to do it once); out comes a `RunReport`
(`trainer.report`). All are canonical JSON (`trainer.strict`), name their format, and refuse unknown
members. No member has a hidden default: what is absent is refused, but for `limits.max_steps`,
where absent means 0.

A job specification, `placet.train/1` (shown with white space; its canonical bytes have none):

    {"format":"placet.train/1","seed":17,
     "base_model":{"uri":"file:///models/smollm2","digest":"sha256:…"},
     "dataset":{"manifest_uri":"s3://ward/help-desk/manifest.json","digest":"sha256:…"},
     "split":{"eval_permille":100},
     "max_tokens":512,"overlong":"refuse",
     "adapter":{"kind":"lora","rank":16,"alpha":32,"dropout":"0","targets":"all-linear"},
     "optimizer":{"learning_rate":"0.0002","schedule":"cosine","warmup_permille":30,
                  "clip_norm":"1.0","weight_decay":"0","tokens_per_step":2048,"epochs":2},
     "precision":"bf16","checkpoint":{"every_steps":20,"keep":3},
     "limits":{"max_minutes":60,"max_steps":0}}

`base_model.digest` is the digest of the bytes of the `FilesManifest` of every file under the URI;
`dataset.digest` that of the manifest's bytes. A permit binds the digest of the specification's
bytes exactly as they were stored.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal

from trainer.manifest import (
    CHAT_ROWS,
    ROWS_FORMATS,
    DatasetManifest,
    DatasetObject,
    FileEntry,
    FilesManifest,
)
from trainer.report import RunReport
from trainer.strict import (
    MAX_INTEGER,
    ContractError,
    Digest,
    JsonValue,
    Reader,
    as_json,
    canonical,
    digest,
    parse,
)

__all__ = [
    "CHAT_ROWS",
    "ROWS_FORMATS",
    "AdapterSpec",
    "ContractError",
    "DatasetManifest",
    "DatasetObject",
    "Digest",
    "FileEntry",
    "FilesManifest",
    "JobSpec",
    "OptimizerSpec",
    "PermitClaims",
    "RunReport",
    "canonical",
    "digest",
    "parse",
]

SPEC_FORMAT = "placet.train/1"
PERMIT_TYPE = "placet-permit+jwt"
PERMIT_AUDIENCE = "placet-trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSpec:
    """What is trained beside the frozen base model.

    Attributes:
        kind: `lora` is the only one.
        rank: Inner dimension of each adapter, 1 to 256.
        alpha: Scale numerator, 1 to 1024; the adapter's output is multiplied by alpha / rank.
        dropout: Share of adapter inputs zeroed in training, 0 to 0.5; 0 makes steps random-free.
        targets: `all-linear`: every linear layer but the output head.
    """

    kind: str
    rank: int
    alpha: int
    dropout: Decimal
    targets: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec:
    """AdamW (betas 0.9 and 0.999, epsilon 1e-8) and its schedule.

    Attributes:
        learning_rate: Peak step size, 1e-7 to 0.1.
        schedule: `cosine` decays to zero at the last planned step, `constant` does not decay.
        warmup_permille: Share of the planned steps with a linear rise, 0 to 500 per mille.
        clip_norm: Largest L2 norm of the gradient over all adapter weights, 0.01 to 100.
        weight_decay: Decoupled decay per unit of learning rate, 0 to 1.
        tokens_per_step: Tokens (prompt and answer) that one update sees, 16 to 4,194,304.
        epochs: Passes over the training rows, 1 to 100.
    """

    learning_rate: Decimal
    schedule: str
    warmup_permille: int
    clip_norm: Decimal
    weight_decay: Decimal
    tokens_per_step: int
    epochs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One fine-tune, `placet.train/1`.

    Attributes:
        seed: Seed of the split, the order and the adapter's initial weights, 0 to 2^31 - 1.
        base_model_uri: Directory of the base model, `file:///` or `s3://`.
        base_model_digest: Digest of its `FilesManifest` bytes.
        dataset_manifest_uri: Where the dataset manifest lies.
        dataset_digest: Digest of the manifest's bytes.
        eval_permille: Share of groups held out for evaluation, 0 to 500 per mille.
        max_tokens: Longest row, and the length of a packed row, 16 to 131,072 tokens.
        overlong: What happens to a longer row: `refuse` the run, `drop` the row, or `truncate` it
            at the end, where a row that keeps no supervised token is dropped; all are counted.
        adapter: What is trained.
        optimizer: How it is trained.
        precision: Type of the frozen weights and of the arithmetic; adapters are always fp32.
        checkpoint_every_steps: Updates between checkpoints, 1 to 100,000.
        checkpoint_keep: Newest checkpoints kept, 1 to 100.
        max_minutes: Longest run over all segments, 1 to 100,000 minutes.
        max_steps: Most updates, 0 to 10,000,000; 0 sets no limit.
    """

    seed: int
    base_model_uri: str
    base_model_digest: Digest
    dataset_manifest_uri: str
    dataset_digest: Digest
    eval_permille: int
    max_tokens: int
    overlong: str
    adapter: AdapterSpec
    optimizer: OptimizerSpec
    precision: str
    checkpoint_every_steps: int
    checkpoint_keep: int
    max_minutes: int
    max_steps: int

    @staticmethod
    def from_bytes(data: bytes) -> "JobSpec":
        """Read a specification.

        Raises:
            ContractError: when a member is missing, unknown or out of range.
        """
        r = Reader(parse(data, max_bytes=65_536), "spec")
        r.constant("format", SPEC_FORMAT)
        base, data_part, split = r.inner("base_model"), r.inner("dataset"), r.inner("split")
        checkpoint, limits = r.inner("checkpoint"), r.inner("limits")
        spec = JobSpec(
            seed=r.integer("seed", 0, 2**31 - 1),
            base_model_uri=base.uri("uri"),
            base_model_digest=base.digest("digest"),
            dataset_manifest_uri=data_part.uri("manifest_uri"),
            dataset_digest=data_part.digest("digest"),
            eval_permille=split.integer("eval_permille", 0, 500),
            max_tokens=r.integer("max_tokens", 16, 131_072),
            overlong=r.choice("overlong", ("refuse", "drop", "truncate")),
            adapter=_read_adapter(r.inner("adapter")),
            optimizer=_read_optimizer(r.inner("optimizer")),
            precision=r.choice("precision", ("fp32", "bf16")),
            checkpoint_every_steps=checkpoint.integer("every_steps", 1, 100_000),
            checkpoint_keep=checkpoint.integer("keep", 1, 100),
            max_minutes=limits.integer("max_minutes", 1, 100_000),
            max_steps=limits.integer("max_steps", 0, 10**7) if limits.has("max_steps") else 0,
        )
        for reader in (base, data_part, split, checkpoint, limits, r):
            reader.close()
        return spec

    def to_bytes(self) -> bytes:
        """Write the canonical bytes; `from_bytes` reads them back to an equal value."""
        adapter, optimizer = asdict(self.adapter), asdict(self.optimizer)
        adapter["dropout"] = f"{self.adapter.dropout:f}"
        for name in ("learning_rate", "clip_norm", "weight_decay"):
            optimizer[name] = f"{optimizer[name]:f}"
        members = {
            "format": SPEC_FORMAT,
            "seed": self.seed,
            "base_model": {"uri": self.base_model_uri, "digest": self.base_model_digest},
            "dataset": {"manifest_uri": self.dataset_manifest_uri, "digest": self.dataset_digest},
            "split": {"eval_permille": self.eval_permille},
            "max_tokens": self.max_tokens,
            "overlong": self.overlong,
            "adapter": adapter,
            "optimizer": optimizer,
            "precision": self.precision,
            "checkpoint": {
                "every_steps": self.checkpoint_every_steps,
                "keep": self.checkpoint_keep,
            },
            "limits": {"max_minutes": self.max_minutes, "max_steps": self.max_steps},
        }
        return canonical(as_json(members))


def _read_adapter(r: Reader) -> AdapterSpec:
    adapter = AdapterSpec(
        kind=r.choice("kind", ("lora",)),
        rank=r.integer("rank", 1, 256),
        alpha=r.integer("alpha", 1, 1024),
        dropout=r.decimal("dropout", "0", "0.5"),
        targets=r.choice("targets", ("all-linear",)),
    )
    r.close()
    return adapter


def _read_optimizer(r: Reader) -> OptimizerSpec:
    optimizer = OptimizerSpec(
        learning_rate=r.decimal("learning_rate", "0.0000001", "0.1"),
        schedule=r.choice("schedule", ("cosine", "constant")),
        warmup_permille=r.integer("warmup_permille", 0, 500),
        clip_norm=r.decimal("clip_norm", "0.01", "100"),
        weight_decay=r.decimal("weight_decay", "0", "1"),
        tokens_per_step=r.integer("tokens_per_step", 16, 4_194_304),
        epochs=r.integer("epochs", 1, 100),
    )
    r.close()
    return optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitClaims:
    """Claims of a permit: a JSON Web Token signed with EdDSA, header `typ` `placet-permit+jwt`.

    Attributes:
        iss: Who issued it, 1 to 200 characters.
        aud: Always `placet-trainer`.
        sub: Run id.
        jti: Permit id.
        iat: When it was issued, seconds since 1970-01-01T00:00:00Z.
        nbf: First second of validity, same unit.
        exp: First second after validity, same unit.
        job: Job id.
        document: Digest of the job document.
        spec: Digest of the specification's bytes.
        dataset: Digest of the dataset manifest's bytes.
        base_model: Digest of the base model's files manifest bytes.
        decision: Digest of the gate's decision record.
        output: URI under which the run may write.
        max_minutes: Longest run that was permitted, 1 to 100,000 minutes.
    """

    iss: str
    aud: str
    sub: str
    jti: str
    iat: int
    nbf: int
    exp: int
    job: str
    document: Digest
    spec: Digest
    dataset: Digest
    base_model: Digest
    decision: Digest
    output: str
    max_minutes: int

    @staticmethod
    def from_claims(claims: Mapping[str, object]) -> "PermitClaims":
        """Read the decoded payload of a token; it says nothing about the signature.

        Raises:
            ContractError: when a claim is missing, unknown or out of range.
        """
        r = Reader(as_json(claims), "permit")
        permit = PermitClaims(
            iss=r.text("iss"),
            aud=r.choice("aud", (PERMIT_AUDIENCE,)),
            sub=r.text("sub", longest=100),
            jti=r.text("jti", longest=100),
            iat=r.integer("iat", 0, MAX_INTEGER),
            nbf=r.integer("nbf", 0, MAX_INTEGER),
            exp=r.integer("exp", 0, MAX_INTEGER),
            job=r.text("job", longest=100),
            document=r.digest("document"),
            spec=r.digest("spec"),
            dataset=r.digest("dataset"),
            base_model=r.digest("base_model"),
            decision=r.digest("decision"),
            output=r.uri("output"),
            max_minutes=r.integer("max_minutes", 1, 100_000),
        )
        r.close()
        return permit

    def to_claims(self) -> dict[str, JsonValue]:
        """Return the payload to sign."""
        return as_json(asdict(self))
