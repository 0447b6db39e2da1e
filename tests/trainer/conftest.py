"""A small world: a random two-layer model, a dataset, an issuer, and a way to run the trainer."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tiny_base import write_tiny_base

from trainer.contract import (
    AdapterSpec,
    DatasetManifest,
    DatasetObject,
    JobSpec,
    OptimizerSpec,
    PermitClaims,
    digest,
)
from trainer.events import EventLog
from trainer.intake import Row, inspect_directory
from trainer.refusal import Exit
from trainer.report import RunReport
from trainer.run import Request, train

WORDS = "ask audit bed care data duty file gate hash item job key law log map note".split()  # noqa: SIM905 — one line


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


@pytest.fixture(autouse=True)
def _restore_signals() -> Iterator[None]:
    saved = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base") / "tiny"
    write_tiny_base(directory)
    return directory


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_base: Path) -> Any:
    from trainer.model_files import load_tokenizer

    return load_tokenizer(tiny_base)


def make_rows(count: int = 40) -> list[dict[str, Any]]:
    """Return rows of unequal length in groups of two."""
    rows = []
    for i in range(count):
        question = " ".join(WORDS[(i * 7 + j) % 16] for j in range(2 + i % 5))
        answer = " ".join(WORDS[(i * 3 + j) % 16] for j in range(1 + i % 7))
        rows.append(
            {
                "id": f"r{i:03d}",
                "group": f"g{i // 2}",
                "language": "en",
                "messages": [
                    {"role": "user", "content": f"{question} {i}"},
                    {"role": "assistant", "content": answer},
                ],
            }
        )
    return rows


SPEC = JobSpec(
    seed=17,
    base_model_uri="file:///base",
    base_model_digest=digest(b"base"),
    dataset_manifest_uri="file:///manifest.json",
    dataset_digest=digest(b"manifest"),
    eval_permille=200,
    max_tokens=160,
    overlong="refuse",
    adapter=AdapterSpec(kind="lora", rank=4, alpha=8, dropout=Decimal(0), targets="all-linear"),
    optimizer=OptimizerSpec(
        learning_rate=Decimal("0.005"),
        schedule="cosine",
        warmup_permille=100,
        clip_norm=Decimal("1.0"),
        weight_decay=Decimal("0.01"),
        tokens_per_step=400,
        epochs=2,
    ),
    precision="fp32",
    checkpoint_every_steps=3,
    checkpoint_keep=2,
    max_minutes=5,
    max_steps=0,
)


@dataclass
class World:
    """Files of one run under `root`."""

    root: Path
    base: Path
    spec: JobSpec = SPEC
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def output(self) -> str:
        return (self.root / "output").as_uri()

    @property
    def out(self) -> Path:
        return self.root / "output"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def write_dataset(self, rows: list[dict[str, Any]], *, rows_format: str = "chat-jsonl") -> None:
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        path = self.root / "rows.jsonl"
        path.write_bytes(data)
        manifest = DatasetManifest(
            name="tiny",
            licence="Apache-2.0",
            rows_format=rows_format,
            objects=(
                DatasetObject(
                    uri=path.as_uri(), digest=digest(data), size_bytes=len(data), rows=len(rows)
                ),
            ),
        ).to_bytes()
        (self.root / "manifest.json").write_bytes(manifest)
        self.change(
            dataset_manifest_uri=(self.root / "manifest.json").as_uri(),
            dataset_digest=digest(manifest),
        )

    def change(self, **members: Any) -> None:
        self.spec = replace(self.spec, **members)

    def claims(self, **members: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = PermitClaims(
            iss="https://placet.example",
            aud="placet-trainer",
            sub="run_1",
            jti="prm_1",
            iat=now,
            nbf=now,
            exp=now + 600,
            job="job_1",
            document=digest(b"document"),
            spec=digest(self.spec.to_bytes()),
            dataset=self.spec.dataset_digest,
            base_model=self.spec.base_model_digest,
            decision=digest(b"decision"),
            output=self.output,
            max_minutes=5,
        ).to_claims()
        return claims | members

    def public_pem(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        typed = {"typ": "placet-permit+jwt"} | header
        return jwt.encode(claims, self.key, algorithm="EdDSA", headers=typed)

    def write_inputs(self, token: str | None = None) -> None:
        (self.root / "spec.json").write_bytes(self.spec.to_bytes())
        (self.root / "permit.jwt").write_text(token or self.sign(self.claims()))
        (self.root / "issuer.pem").write_bytes(self.public_pem())
        self.scratch.mkdir(exist_ok=True)

    def request(self, **members: Any) -> Request:
        request = Request(
            spec=self.root / "spec.json",
            permit=self.root / "permit.jwt",
            issuer_key=self.root / "issuer.pem",
            run_id="run_1",
            output=self.output,
            scratch=self.scratch,
            threads=1,
        )
        return replace(request, **members)

    def train(self, token: str | None = None, **members: Any) -> Exit:
        self.write_inputs(token)
        return train(self.request(**members))

    def arguments(self) -> list[str]:
        r = self.request()
        return [
            *("train", "--spec", str(r.spec), "--permit", str(r.permit)),
            *("--issuer-key", str(r.issuer_key), "--run-id", r.run_id, "--output", r.output),
            *("--scratch", str(r.scratch), "--threads", "1"),
        ]

    def events(self) -> list[dict[str, Any]]:
        lines = EventLog(self.scratch / "events.jsonl").read().splitlines()
        return [json.loads(line) for line in lines]

    def report(self) -> RunReport:
        return RunReport.from_bytes((self.out / "report.json").read_bytes())


@pytest.fixture
def make_world(tmp_path: Path, tiny_base: Path) -> Callable[..., World]:
    """Return a maker of worlds; each has a permit's inputs and the small dataset."""

    def make(name: str = "world", *, base: Path = tiny_base, rows: int = 40) -> World:
        root = tmp_path / name
        root.mkdir()
        manifest = inspect_directory(base.as_uri(), lambda: None).to_bytes()
        world = World(root=root, base=base)
        world.change(base_model_uri=base.as_uri(), base_model_digest=digest(manifest))
        world.write_dataset(make_rows(rows))
        return world

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def row() -> Callable[..., Row]:
    """Return a maker of rows from (role, content) pairs."""
    from trainer.intake import Message

    def make(*turns: tuple[str, str], row_id: str = "r", group: str = "g") -> Row:
        return Row(row_id, group, "en", tuple(Message(*turn) for turn in turns))

    return make
