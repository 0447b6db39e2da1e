"""Rooms depend one way, and what must stay light is light."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sources import ROOMS, ROOT

# Prints the top-level modules that importing some modules loads, without those of start-up.
_PROBE = """
import json, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
for name in sys.argv[2:]:
    __import__(name)
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(loaded - sys.stdlib_module_names)))
"""
# cryptography is Rust and C behind cffi; these are its own top-level modules.
_CRYPTOGRAPHY = {"_cffi_backend", "_openssl", "cffi", "cryptography"}


def loaded_by(*names: str) -> set[str]:
    """Return the top-level modules outside the standard library that importing `names` loads."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _PROBE, str(ROOT), *names],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(done.stdout))


def test_import_contracts_hold():
    program = Path(sys.executable).parent / "lint-imports"

    done = subprocess.run(
        [program, "--no-cache"], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("module", ["audit.verify", "audit.__main__", "audit.bundle"])
def test_the_verifier_loads_the_standard_library_and_cryptography_only(module):
    assert loaded_by(module) <= {"audit"} | _CRYPTOGRAPHY


def test_the_trainers_contract_loads_nothing_but_itself():
    assert loaded_by("trainer.contract") == {"trainer"}


def test_the_command_line_loads_nothing_heavy_before_a_command_is_chosen():
    assert loaded_by("service.cli") == {"service"}


def test_the_gate_loads_no_service_and_no_torch():
    forbidden = {"fastapi", "mlflow", "service", "sqlalchemy", "torch", "trainer"}

    assert not loaded_by("policies.gate", "policies.load") & forbidden


def test_the_service_loads_no_torch():
    forbidden = {"accelerate", "peft", "safetensors", "torch", "transformers"}

    assert not loaded_by("service.installation", "service.app", "service.worker") & forbidden


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_tells_type_checkers_that_it_is_typed(room):
    assert (ROOT / room / "py.typed").exists()
