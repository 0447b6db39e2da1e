"""docker-compose.yml is valid, hardened, and asks for every secret."""

import importlib.resources
import json
import re

import jsonschema
import pytest
from deploy.compose import SAMPLE, TEXT, interpolated, variables

from service import cli
from service.settings import Settings

DOCUMENT = interpolated(SAMPLE)
SERVICES = DOCUMENT["services"]
OURS = ("migrate", "worker", "service")
SECRETS = re.compile(r"PASSWORD|SECRET|ACCESS_KEY|TOKEN")
# Whose root file system is writable, and why.
WRITABLE = {"postgres": "Compose copies an inline file into the container"}


def test_it_is_valid_by_the_compose_specification():
    schemas = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text(encoding="utf-8"))

    jsonschema.validate(DOCUMENT, schema)


def test_every_variable_is_written_in_a_form_that_is_checked():
    dollars = re.findall(r"^[^#\n]*?\$(?!\{[A-Z0-9_]+:[-?])", TEXT, re.MULTILINE)

    assert dollars == []


def test_no_secret_has_a_default():
    defaults = {found["name"]: found["rest"] for found in variables() if found["operator"] == ":-"}

    assert defaults == {
        "PLACET_PUBLIC_URL": "http://localhost:8080",
        "PLACET_WITNESS_POLICY": "",  # nobody is asked
    }


def test_every_required_variable_says_what_to_set():
    required = [found for found in variables() if found["operator"] == ":?"]

    assert [found["name"] for found in required if not found["rest"]] == []


def test_the_header_names_every_required_variable():
    required = {found["name"] for found in variables() if found["operator"] == ":?"}
    named = set(re.findall(r"^# +(PLACET_[A-Z0-9_]+)=", TEXT, re.MULTILINE))

    assert named == required | {"PLACET_WITNESS_POLICY"}
    assert required == set(SAMPLE)


def test_secrets_come_from_variables_only():
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if SECRETS.search(key):
                assert value in SAMPLE.values(), f"{name}: {key}"


@pytest.mark.parametrize("name", OURS)
def test_what_our_processes_get_are_settings_of_ours(name, monkeypatch):
    environment = SERVICES[name]["environment"]
    known = {f"PLACET_{field.upper()}" for field in Settings.model_fields}
    for key, value in environment.items():
        monkeypatch.setenv(key, value)

    settings = Settings()

    assert set(environment) <= known
    assert settings.site_hosts == ("s3", "mlflow")
    assert settings.guard.parent != settings.home


def test_our_processes_share_one_set_of_settings():
    assert len({json.dumps(SERVICES[name]["environment"], sort_keys=True) for name in OURS}) == 1


@pytest.mark.parametrize("name", SERVICES)
class TestEveryContainer:
    def test_gives_up_every_privilege(self, name):
        service = SERVICES[name]

        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"cap_add", "privileged", "pid", "ipc", "devices"} & set(service)
        assert service.get("network_mode", "service:worker") == "service:worker"

    def test_does_not_run_as_root(self, name):
        service = SERVICES[name]

        # Our own images name their user, which test_dockerfiles.py checks.
        assert "build" in service or service["user"] not in {"root", "0", 0}

    def test_has_a_read_only_root_or_a_reason(self, name):
        assert SERVICES[name].get("read_only", False) != (name in WRITABLE)

    def test_names_a_version(self, name):
        _, _, tag = SERVICES[name]["image"].partition(":")

        assert tag
        assert tag != "latest"

    def test_is_checked_or_ends_by_itself(self, name):
        service = SERVICES[name]

        assert ("healthcheck" in service) != service["restart"].startswith("on-failure")

    def test_keeps_its_data_in_named_volumes(self, name):
        for mount in SERVICES[name].get("volumes", []):
            assert mount.partition(":")[0] in DOCUMENT["volumes"], mount

    def test_waits_for_what_exists_and_can_be_waited_for(self, name):
        for other, how in SERVICES[name].get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other]
            if how["condition"] == "service_completed_successfully":
                assert "healthcheck" not in SERVICES[other]


def test_only_the_api_is_published_and_only_on_loopback():
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert ports == {"worker": ["127.0.0.1:8080:8080"]}


def test_databases_objects_and_tracking_have_no_way_out():
    assert DOCUMENT["networks"]["inside"] == {"internal": True}
    for name in ("postgres", "s3", "buckets", "mlflow", "migrate"):
        assert SERVICES[name]["networks"] == ["inside"]


def test_tracking_holds_no_credentials_of_the_evidence_database():
    environment = json.dumps(SERVICES["mlflow"]["environment"])

    assert SAMPLE["PLACET_DB_PASSWORD"] not in environment
    assert SAMPLE["PLACET_DB_ADMIN_PASSWORD"] not in environment


def test_the_witness_shares_no_volume_no_setting_and_no_network_but_the_workers():
    witness, others = SERVICES["witness"], {n: s for n, s in SERVICES.items() if n != "witness"}

    volumes = {mount.partition(":")[0] for mount in witness["volumes"]}
    assert volumes == {"witness"}
    for service in others.values():
        mounts = {mount.partition(":")[0] for mount in service.get("volumes", [])}
        assert not volumes & mounts
    assert "environment" not in witness
    assert witness["networks"] == ["watched"]
    assert DOCUMENT["networks"]["watched"] == {"internal": True}
    assert [n for n, s in others.items() if "watched" in s.get("networks", [])] == ["worker"]


def test_the_witness_starts_as_a_command_of_ours():
    words = SERVICES["witness"]["command"]

    arguments = cli._parser("witness").parse_args(words)

    assert arguments.name == SAMPLE["PLACET_WITNESS_NAME"]
    assert str(arguments.data) == SERVICES["witness"]["volumes"][0].partition(":")[2]
