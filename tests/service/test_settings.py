"""Settings: unsafe ones are refused with a way out, secrets are never shown, each is documented."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from world import open_world

from service.settings import Settings

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-Kartoffel"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"s3_secret_key": "changeme"}, "placeholder"),
        ({"s3_secret_key": "MINIO"}, "placeholder"),
        ({"database_url": "mysql://x"}, "postgresql"),
        ({"database_url": "sqlite://"}, "sqlite:///"),
        ({"database_url": "postgresql+psycopg://u:postgres@h/d"}, "placeholder"),
        ({"objects_uri": "/srv/objects"}, "file:///"),
        ({"objects_uri": "https://bucket"}, "s3://"),
        ({"site_country": "FR"}, "PLACET_SITE_DECLARED_ON"),
        ({"site_country": "France", "site_declared_on": "2026-11-30"}, "pattern"),
        ({"site_country": "FR", "site_declared_on": "yesterday"}, "pattern"),
        ({"origin": "Has Blanks"}, "pattern"),
        ({"approval_hours": 0}, "greater"),
        ({"permit_minutes": 100_000}, "less"),
        ({"port": 0}, "greater"),
        ({"max_body_bytes": 1}, "greater"),
        ({"worker_interval_s": 0}, "greater"),
        ({"log_format": "xml"}, "json"),
        ({"sitecountry": "FR"}, "permitted"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_an_unsafe_or_unknown_setting_is_refused(settings, says):
    with pytest.raises(ValidationError) as caught:
        Settings(**settings)

    assert says in str(caught.value)
    assert next(iter(settings)) in str(caught.value) or "site" in str(settings)


def test_nothing_is_permitted_by_default():
    settings = Settings()

    assert settings.site_country is None
    assert settings.object_roots == ()
    assert settings.host == "127.0.0.1"
    assert settings.site_hds_self_hosted is False


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("PLACET_SITE_COUNTRY", "DE")
    monkeypatch.setenv("PLACET_SITE_DECLARED_ON", "2026-11-30")
    monkeypatch.setenv("PLACET_PORT", "")

    assert Settings().site_country == "DE"
    assert Settings().port == 8080


@pytest.mark.parametrize("show", [repr, str])
def test_secrets_are_not_shown(show):
    settings = Settings(
        s3_secret_key=SECRET,
        database_url=f"postgresql+psycopg://placet:{SECRET}@db.example/placet",
        tracking_uri=f"https://placet:{SECRET}@mlflow.example",
    )

    assert SECRET not in show(settings)


def test_an_installation_shows_no_secret(tmp_path):
    folder = tmp_path / "world"
    folder.mkdir()
    world = open_world(
        folder,
        f"sqlite:///{tmp_path / 'placet.db'}",
        s3_endpoint="http://127.0.0.1:9",
        s3_access_key="placet-key",
        s3_secret_key=SECRET,
    )
    try:
        shown = repr(world.wired)
    finally:
        world.wired.database.dispose()

    assert SECRET not in shown
    for name in ("seal.bin", "log.pem", "permit.pem"):
        key = (folder / "home" / "keys" / name).read_bytes()
        assert repr(key) not in shown


def test_a_refused_url_does_not_show_its_password():
    with pytest.raises(ValidationError) as caught:
        Settings(database_url=f"mysql://placet:{SECRET}@db.example/placet")

    assert SECRET not in str(caught.value)


def test_a_refused_setting_does_not_show_the_others():
    with pytest.raises(ValidationError) as caught:
        Settings(s3_secret_key=SECRET, site_country="FR")

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented(name):
    assert len(Settings.model_fields[name].description or "") > 10
    assert f"PLACET_{name.upper()}" in (ROOT / "README.md").read_text() + "".join(
        path.read_text() for path in (ROOT / "docs").glob("*.md")
    )


def test_settings_cannot_be_changed_later():
    with pytest.raises(ValidationError):
        Settings().port = 1
