"""Every public case that the gate must withstand is the first thing that some test says."""

import ast
from collections.abc import Iterator

import pytest
from sources import ROOT

CASES = """
open-policy-agent/conftest#1164        a typo in a path means allow
open-policy-agent/opa#1877             `not f(x)` with x missing is undefined
fugue/regula#159                       a count over nothing never fires
cedar-policy/cedar#2428                a forbid that errors is dropped
teramoby/speedle-plus PR#36            a deny that cannot be evaluated is dropped
jeremylongshore/claude-code-slack-channel PR#271    an empty input matches no deny
cloud-custodian/cel-python#113         a missing field compares as false
hashicorp/terraform#34230              all of nothing is true
mondoohq/cnspec#248                    all of nothing is true
fugue/regula PR#8                      one valid block excuses the others
python-jsonschema/jsonschema#1208      numbers for booleans
python-jsonschema/jsonschema#216       a misspelt keyword is ignored
horejsek/python-fastjsonschema#194     validation writes into the data
python-jsonschema/jsonschema#395       dates go unchecked
PrefectHQ/prefect PR#22252             a remote reference is fetched
Azure/azure-policy#576                 a null location passes
hashicorp/terraform-sentinel-policies PR#11    case is folded in one place only
OpenCageData/address-formatting PR#27  Norway becomes false
carmen-ruby/carmen#4                   Norway becomes false
anthropics/claude-code#29489           look-alike letters pass
conforma/policy PR#1781                half-anchored patterns
octo-sts/app PR#1643                   half-anchored patterns
kyverno/kyverno#5617                   a wildcard in an exception
open-policy-agent/opa#3147             a big integer loses digits
kyverno/kyverno#17473                  an expired exception is honoured elsewhere
golang/vulndb#3230                     an exception made beside the guarded door
kyverno/kyverno#17367                  an exception made beside the guarded door
bridgecrewio/checkov#7307              the judged file disables its check
golang/vulndb#1819                     what is being deleted skips policy
kubescape/cel-admission-library#116    a control errors when it should match
open-policy-agent/opa#1442             what is filled in skips validation
oxdeai/oxdeai#253                      checked is not what is used
solankiharsh2837/wolverine-db#4        checked is not what is used
JSONbored/loopover#9135                an unrecorded draw breaks replay
Hardhat-Enterprises/Policy-Deployment-Engine PR#714    what matched nothing is green
conforma/cli PR#393                    what matched nothing is green
kyverno/kyverno#2303                   what does not match counts as pass
sipyourdrink-ltd/bernstein#4913        unknown conditions are dropped
microsoft/regorus#402                  two engines, two answers
open-policy-agent/opa#5264             two engines, two answers
mcp-hangar/mcp-hangar#674              policy tightened after the approval
mcp-hangar/mcp-hangar#665              the decider's name comes from the body
ciso-assistant#2967                    who asks names themself approver
woojubb/robota#2392                    a rule edited meanwhile
ciso-assistant#4650                    accepted, then revoked
flyteorg/flyte#4433                    a pending item is never shown
pensarai/apex#638                      nobody answers
apache/airflow#72157                   a broad permission answers
skypilot#10374                         the client sends its own policy
roboflow/inference#2474                an unset region
NovaSky-AI/SkyRL#2035                  one key, two bodies
ovh/public-cloud-roadmap#995           no certificate names the product
python-jsonschema/jsonschema#945       formats pass with garbage
microsoft/agent-governance-toolkit#756    keywords decide a purpose
"""


def docstrings() -> Iterator[str]:
    for room in ("policies", "service"):
        for path in sorted((ROOT / "tests" / room).rglob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield (ast.get_docstring(node) or "").partition(":")[0]


def cases() -> list[str]:
    return [line.partition("  ")[0].strip() for line in CASES.strip().splitlines()]


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Return every case that a test names, with the repository that a lone number belongs to."""
    found = set()
    for heading in docstrings():
        repository = ""
        for part in heading.split(","):
            case = part.strip().partition(" (")[0]
            if case.startswith("#"):
                case = repository + case
            repository = case.partition("#")[0]
            found.add(case)
    return found


@pytest.mark.parametrize("case", cases())
def test_a_test_replays_the_case(case: str, named: set[str]):
    assert case in named
