"""The whole `train` command on the small world."""

from trainer.contract import digest
from trainer.refusal import Exit


def test_a_permitted_run_learns_and_reports(world):
    code = world.train()

    report = world.report()
    assert code == Exit.DONE
    assert report.status == "succeeded"
    assert report.metrics["eval_loss_after"] < report.metrics["eval_loss_before"]
    assert len(report.loss_curve) == report.ledger["steps_planned"] == report.ledger["steps_done"]
    assert set(report.selftests.values()) == {"pass"}
    assert report.to_bytes() == (world.out / "report.json").read_bytes()
    for path, artefact in report.artefacts.items():
        data = (world.out / path).read_bytes()
        assert (digest(data), len(data)) == (artefact.digest, artefact.size_bytes)
