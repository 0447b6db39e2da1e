"""In which environment a run happened, as text for the report."""

import os
import platform
from importlib import metadata
from pathlib import Path

from trainer.contract import digest

NAMED = ("torch", "transformers", "peft", "tokenizers", "safetensors", "numpy")


def packages_digest() -> str:
    """Return the digest of all installed distributions, `name==version` a line, sorted."""
    found = {f"{d.name.lower()}=={d.version}" for d in metadata.distributions()}
    return digest("\n".join(sorted(found)).encode())


def code_digest() -> str:
    """Return the digest of the trainer's own sources: path and digest, one file a line."""
    root = Path(__file__).parent
    lines = [
        f"{path.relative_to(root).as_posix()} {digest(path.read_bytes())}"
        for path in sorted(root.rglob("*.py"))
    ]
    return digest("\n".join(lines).encode())


def cpu_model() -> str:
    """Return the processor's name, `unknown` where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine() or "unknown"


def describe(*, device: str, threads: int) -> dict[str, str]:
    """Return the environment; versions of what computes are named, all others are digested."""
    words = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages_digest(),
        "code": code_digest(),
        "cpu": cpu_model(),
        "device": device,
        "threads": str(threads),
        "image_claimed": os.environ.get("PLACET_IMAGE_DIGEST", "none"),
    }
    return words | {name: metadata.version(name) for name in NAMED}
