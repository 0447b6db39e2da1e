"""Step 15: the auditor exports everything and verifies it without trusting the service."""

import subprocess
import sys
from pathlib import Path

from service.demo.house import entry_point, source_environment
from service.demo.stage import Stage, require

_WITHIN_S = 300


def export(stage: Stage) -> None:
    """Let the auditor make and download a bundle."""
    stage.story.step("Inês, the auditor, exports the log and everything that it names")
    auditor, file = stage.people["auditor"], stage.file("evidence.zip")
    row = auditor.post("/v1/exports", {"recipient": "auditor"})
    size = auditor.download(row["bundle"], file)
    keys = auditor.get("/v1/log/keys")
    stage.ids["vkey"] = keys["vkeys"][0]
    stage.story.show(
        bundle=str(file),
        entries=row["num_entries"],
        size=f"{size:,} bytes",
        log_key=stage.ids["vkey"],
    )
    stage.story.say("In earnest the key reaches her by another way than the bundle.")
    stage.results["bundle"] = str(file)


def verify(stage: Stage) -> None:
    """Verify the bundle in a process of its own, with the printed key, and replay each decision."""
    stage.story.step("She verifies it offline and makes every decision again")
    command = ("verify", stage.results["bundle"], "--vkey", stage.ids["vkey"], "--replay")
    done = subprocess.run(  # noqa: S603 — our own interpreter and command
        [sys.executable, "-P", "-m", "service.cli", *command],
        env=source_environment(),
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    report = stage.file("verification.txt")
    report.write_text(done.stdout + done.stderr, encoding="utf-8")
    stage.story.say((done.stdout + done.stderr).strip())
    require(done.returncode == 0, f"`placet verify` ended with {done.returncode}; see {report}")
    stage.results["verification"] = str(report)


def _megabytes(folder: Path) -> int:
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return sum(sizes) // 1_000_000


def summarise(stage: Stage) -> None:
    """Print what came out and how to go on."""
    settings = stage.house.write_settings()
    found, folder = stage.results, stage.house.folder
    story = stage.story
    story.say(f"\n{'=' * 78}")
    story.show(
        denied=found["denied"],
        decision=found["decision"],
        approval=found["approval"],
        loss=f"{found['loss']} (perplexity {found['perplexity']})",
        model_card=f"{found['card (md)']}\n{found['card (html)']}",
        transparency=found["transparency (html)"],
        bundle=found["bundle"],
        verification=found["verification"],
        all_done_in=f"{story.elapsed_s:.0f} s",
        folder=f"{folder} ({_megabytes(folder)} MB; delete it when you are done)",
    )
    story.say(
        f"\nOpen the house again, in a shell of its own:\n"
        f"  . {settings} && {entry_point()} serve\n"
        f"and look around in another:\n"
        f"  export PLACET_URL={stage.house.url} PLACET_TOKEN=$(cat {folder}/token-auditor)\n"
        f"  {entry_point()} jobs; {entry_point()} job {stage.ids['job']}"
    )
