"""The wheel stands alone: with `cryptography` and nothing else, an auditor can verify."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from sources import ROOMS, ROOT, tracked

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of the tracked files, without an index."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for path in tracked():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, source / path)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source)
    subprocess.run(build, check=True, capture_output=True)
    (built,) = out.glob("placet-*.whl")
    return built


@pytest.fixture(scope="module")
def auditor(wheel, tmp_path_factory):
    """Make an environment with the wheel's base install; `cryptography` comes from this one."""
    home = tmp_path_factory.mktemp("auditor")
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", home), check=True)
    python = home / "bin" / "python"
    packages = next((home / "lib").glob("python*")) / "site-packages"
    for name in closure("cryptography"):
        copy_distribution(name, packages)
    install = ("-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", wheel)
    subprocess.run((sys.executable, *install), check=True, capture_output=True)
    subprocess.run(
        (sys.executable, "-m", "pip", "--python", python, "check"), check=True, capture_output=True
    )
    return home


def closure(name: str) -> set[str]:
    """Return a distribution and all that it needs here."""
    found = {name}
    for line in requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found |= closure(requirement.name)
    return found


def copy_distribution(name: str, target: Path) -> None:
    source = Path(sysconfig.get_path("platlib"))
    for file in distribution(name).files or ():
        if file.parts[0] != ".." and (source / file).is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / file, target / file)


def run(auditor: Path, *command: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [auditor / "bin" / command[0], *command[1:]],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_every_file_of_the_rooms_is_in_the_wheel(wheel):
    expected = {
        path.as_posix()
        for path in tracked()
        if path.parts[0] in ROOMS and path.name != "Dockerfile"
    }

    with zipfile.ZipFile(wheel) as archive:
        missing = expected - set(archive.namelist())

    assert missing == set()


def test_the_wheel_holds_our_rooms_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}

    assert {folder for folder in folders if not folder.endswith(".dist-info")} == set(ROOMS)


def test_the_base_install_verifies(auditor, tmp_path):
    (tmp_path / "not-a-bundle.zip").write_bytes(b"PK")

    asked = run(auditor, "placet", "verify", "--help", cwd=tmp_path)
    refused = run(auditor, "placet", "verify", "not-a-bundle.zip", cwd=tmp_path)

    assert asked.returncode == 0, asked.stderr
    assert "--vkey" in asked.stdout
    assert refused.returncode == 2, refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [("serve", "service"), ("whoami", "client"), ("policy", "policies")],
)
def test_other_commands_name_the_extra_they_need(auditor, tmp_path, command, extra):
    done = run(auditor, "placet", command, *["show"][: command == "policy"], cwd=tmp_path)

    assert done.returncode == 2
    assert f"placet[{extra}]" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_planted_module_in_the_evidence_folder_is_not_run(auditor, tmp_path):
    for room in ROOMS:
        (tmp_path / f"{room}.py").write_text("raise SystemExit('planted code ran')\n")

    done = run(auditor, "placet", "verify", "--help", cwd=tmp_path)
    isolated = run(auditor, "python", "-I", "-m", "audit", "verify", "--help", cwd=tmp_path)

    assert (done.returncode, isolated.returncode) == (0, 0), done.stderr + isolated.stderr
