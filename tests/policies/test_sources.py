"""Reference rows that need a look, by age, confidence and end."""

import json

from policies.__main__ import main


def test_old_rows_are_listed_on_a_later_day(capsys):
    assert main(["sources", "--stale-after", "180d", "--on", "2027-12-01", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["stale"][0]["checked_on"] == min(r["oldest"] for r in said["tables"].values())
    assert all(r["stale"] == r["rows"] for r in said["tables"].values())


def test_fail_makes_a_row_that_needs_a_look_an_error():
    assert main(["sources", "--on", "2026-12-01", "--fail"]) == 1


def test_unverified_rows_are_counted(capsys):
    main(["sources", "--on", "2026-12-01", "--json"])
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert tables["prices"]["unverified"] == tables["prices"]["rows"]


def test_a_misspelt_age_or_day_is_refused(capsys):
    assert main(["sources", "--stale-after", "soon"]) == 2
    assert "such as 180d" in capsys.readouterr().err
    assert main(["sources", "--on", "tomorrow"]) == 2
