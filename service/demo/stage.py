"""What the steps of the demo share: the story, the house, its people, and what was found so far."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from policies.strict import parse_yaml
from service.client import Client
from service.commands.errors import CommandError
from service.demo.house import House
from service.demo.story import Story

TEAM = "compliance"
DATA = Path(__file__).parent / "data" / "helpdesk.jsonl"
_EXAMPLES = Path(__file__).parent / "examples"
_BF16 = re.compile(r"\b(avx512_bf16|amx_bf16)\b")


@dataclass
class Stage:
    """One run of the demo.

    Attributes:
        story: tells what happens.
        house: the running service.
        people: role in the demo → client with that person's token.
        ids: what was made so far, by kind.
        results: figures and files for the summary.
        steps: updates to train.
    """

    story: Story
    house: House
    steps: int
    people: dict[str, Client] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        """Name a file in the folder of this run."""
        return self.house.folder / name

    def document(self, name: str, **values: object) -> dict[str, Any]:
        """Fill in one of the example documents, keep it in the folder, and read it strictly."""
        text = Template((_EXAMPLES / name).read_text(encoding="utf-8")).substitute(values)
        self.file(name).write_text(text, encoding="utf-8")
        value = parse_yaml(text.encode())
        if not isinstance(value, dict):
            raise CommandError(f"the example `{name}` is no mapping")
        return value


def require(is_so: object, what: str) -> None:
    """End the demo when a step did not do what it claims.

    Raises:
        CommandError: it is not so.
    """
    if not is_so:
        raise CommandError(f"the demo stops: {what}")


def precision() -> str:
    """Choose bf16 where this processor computes in it, else fp32."""
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "fp32"
    return "bf16" if _BF16.search(described) else "fp32"
