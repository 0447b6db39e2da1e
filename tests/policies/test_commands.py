"""What all commands of `placet policy` share."""

import json

import pytest

from policies import __main__ as door

MODULES = [each.__name__.rpartition(".")[2] for each in door._COMMANDS]
NAMES = [name for name in MODULES if name != "bundle"]


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example_and_the_exit_codes(capsys, name):
    with pytest.raises(SystemExit) as ended:
        door.main([name, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--json" in said
    assert f"placet policy {name}" in said


def test_an_interrupt_ends_with_130(monkeypatch):
    def interrupted(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(door, "handle_policy", interrupted)
    assert door.main(["lint"]) == 130


def test_test_runs_the_rules_that_are_named(capsys):
    assert door.main(["test", "hds.activities", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"] == 6


def test_test_refuses_a_rule_that_is_not_there(capsys):
    assert door.main(["test", "no.such"]) == 2
    assert "there is no rule `no.such`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file or directory"),
        (b"", "is no bundle of packs"),
        (b"\xff\x00", "is no bundle of packs"),
        (b"[]", "is no bundle of packs"),
    ],
)
def test_a_file_that_is_no_bundle_is_refused_by_its_name(tmp_path, capsys, content, says):
    path = tmp_path / "policy-7.json"
    if content is not None:
        path.write_bytes(content)

    assert door.main(["inspect", str(path)]) == 2

    told = capsys.readouterr().err
    assert str(path) in told
    assert says in told
    assert "Errno" not in told
    assert told.count("\n") == 1
