"""What a rule may not say; each refusal answers a way in which a gate was opened somewhere."""

import copy

import pytest

from policies.lint import KEYWORDS, lint_rule
from policies.load import PACKS, load_policy, load_reference, policy_of, read_packs
from policies.policy import Policy
from policies.reference import Reference, ReferenceDataError
from policies.rule import RuleError, needs
from policies.strict import parse_yaml

GPUS = PACKS / "eu-baseline" / "scope-gpus.yaml"


@pytest.fixture(scope="module")
def shipped():
    return parse_yaml(GPUS.read_bytes())


def leaf(schema):
    return {"required": ["compute"], "properties": {"compute": schema}}


BAD_SCHEMAS = {
    "misspelt path": (
        leaf({"required": ["gpu"], "properties": {"gpu": {"maximum": 4}}}),
        "no fact `gpu`",
    ),
    "misspelt keyword": (leaf({"requried": ["gpus"]}), "`requried` is refused"),
    "case of a keyword": (leaf({"anyof": [{"required": ["gpus"]}]}), "`anyof` is refused"),
    "not": (leaf({"not": {"required": ["gpus"]}}), "`not` is refused"),
    "if": (leaf({"if": {"required": ["gpus"]}}), "`if` is refused"),
    "pattern": (
        leaf({"required": ["region"], "properties": {"region": {"pattern": "^eu-"}}}),
        "`pattern`",
    ),
    "format": (
        leaf({"required": ["region"], "properties": {"region": {"format": "date"}}}),
        "`format`",
    ),
    "default": (leaf({"required": ["gpus"], "properties": {"gpus": {"default": 1}}}), "`default`"),
    "multipleOf": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"multipleOf": 2}}}),
        "`multipleOf`",
    ),
    "remote reference": ({"$ref": "http://127.0.0.1:9/x.json"}, "`\\$ref` is refused"),
    "local reference": (leaf({"$ref": "#/x"}), "`\\$ref` is refused"),
    "additionalProperties": (
        leaf({"additionalProperties": False}),
        "`additionalProperties` is refused",
    ),
    "not required": ({"properties": {"compute": {"required": ["gpus"]}}}, "is not `required`"),
    "items without minItems": (
        {"required": ["storage"], "properties": {"storage": {"items": {"required": ["role"]}}}},
        "without `minItems`",
    ),
    "null constant": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"const": None}}}),
        "null is unknown",
    ),
    "null in enum": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"enum": [1, None]}}}),
        "null is unknown",
    ),
    "empty leaf": (
        leaf({"required": ["gpus"], "properties": {"gpus": {}}}),
        "at least one keyword",
    ),
    "boolean schema": (
        leaf({"required": ["gpus"], "properties": {"gpus": True}}),
        "at least one keyword",
    ),
    "wrong type of bound": (
        leaf({"required": ["region"], "properties": {"region": {"maximum": 4}}}),
        "expected integer",
    ),
    "list keyword on text": (
        leaf({"required": ["region"], "properties": {"region": {"minItems": 1}}}),
        "expected array",
    ),
    "text keyword on a number": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"minLength": 1}}}),
        "expected string",
    ),
    "constant of another type": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"const": "4"}}}),
        "never hold '4'",
    ),
    "boolean for a number": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"const": True}}}),
        "never hold True",
    ),
    "constant with look-alikes": (
        leaf({"required": ["provider"], "properties": {"provider": {"const": "ovhcl\u043eud"}}}),
        "never hold",
    ),
    "constant that no fact has": (
        {
            "required": ["job"],
            "properties": {
                "job": {"required": ["kind"], "properties": {"kind": {"enum": ["finetune"]}}}
            },
        },
        "never hold 'finetune'",
    ),
    "type that no fact has": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"type": "string"}}}),
        "type `string`",
    ),
    "misshapen keyword": (
        leaf({"required": ["gpus"], "properties": {"gpus": {"maximum": "4"}}}),
        "not a schema",
    ),
    "inside contains": (
        {"required": ["storage"], "properties": {"storage": {"contains": {"required": ["rolle"]}}}},
        "no fact `rolle`",
    ),
    "inside anyOf": ({"anyOf": [{"required": ["computer"]}]}, "no fact `computer`"),
}


@pytest.mark.parametrize(("schema", "message"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS.keys())
@pytest.mark.parametrize("member", ["requires", "applies_when"])
def test_an_unsafe_schema_is_refused(shipped, schema, message, member):
    changed = {**copy.deepcopy(shipped), member: schema}
    if member == "applies_when":
        changed["requires"] = shipped["requires"]

    with pytest.raises(RuleError, match=message):
        lint_rule(changed, "here")


BAD_RULES = {
    "unknown member": ({"skip": True}, "additionalProperties"),
    "wrong format": ({"format": "placet.rule/2"}, "const"),
    "no requires": ({"requires": {}}, "minProperties"),
    "approvals on deny": ({"approvals": [{"role": "officer", "count": 1}]}, "belong to"),
    "approval without approvals": ({"effect": "require_approval"}, "belong to"),
    "allow rule": ({"effect": "allow"}, "enum"),
    "ends before it begins": (
        {"effective": {"from": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}},
        "ends before",
    ),
    "free date": ({"effective": {"from": "2026-01-01", "until": None}}, "pattern"),
    "no legal basis": ({"legal_basis": []}, "minItems"),
    "odd id": ({"id": "Scope GPUs"}, "pattern"),
    "version": ({"version": "1"}, "pattern"),
    "attribute access": ({"remediation": "{/compute/gpus.__class__}"}, "brace"),
    "format expression": ({"remediation": "{0}"}, "brace"),
    "open brace": ({"remediation": "a { b"}, "brace"),
    "placeholder without fact": ({"remediation": "{/compute/cpu}"}, "names no fact"),
    "invisible character": ({"remediation": "a\u200bb"}, "invisible"),
    "line break": ({"remediation": "a\nb"}, "control"),
}


@pytest.mark.parametrize(("change", "message"), BAD_RULES.values(), ids=BAD_RULES.keys())
def test_a_misshapen_rule_is_refused(shipped, change, message):
    changed = {**copy.deepcopy(shipped), **change}
    if isinstance(changed["remediation"], str):
        changed["remediation"] = dict.fromkeys(shipped["remediation"], changed["remediation"])

    with pytest.raises(RuleError, match=message):
        lint_rule(changed, "here")


@pytest.mark.parametrize(
    ("member", "value", "where"),
    [
        ("effective", {"from": "2026-13-45T99:00:00Z", "until": None}, "effective.from"),
        ("effective", {"from": "2026-01-01T00:00:00Z", "until": "2027-02-30T00:00:00Z"}, "until"),
        (
            "legal_basis",
            [{"ref": "GDPR Art. 5", "from": "2026-02-31", "note": "why"}],
            "GDPR Art. 5",
        ),
    ],
)
def test_a_day_that_does_not_exist_is_refused(shipped, member, value, where):
    with pytest.raises(RuleError, match=f"{where}.*no date of the calendar"):
        lint_rule({**shipped, member: value}, "x.yaml")


def test_a_text_in_five_languages_is_refused(shipped):
    changed = copy.deepcopy(shipped)
    del changed["title"]["pl"]

    with pytest.raises(RuleError, match="required"):
        lint_rule(changed, "here")


def test_a_message_for_another_place_is_refused(shipped):
    changed = copy.deepcopy(shipped)
    changed["messages"]["/job/kind"] = changed["messages"][""]

    with pytest.raises(RuleError, match="does not name"):
        lint_rule(changed, "here")


def test_the_whole_subset_can_be_used(shipped):
    schema = {
        "type": "object",
        "required": ["compute", "storage"],
        "properties": {
            "compute": {
                "allOf": [
                    {
                        "required": ["gpus", "region"],
                        "properties": {
                            "gpus": {
                                "type": "integer",
                                "exclusiveMinimum": 0,
                                "exclusiveMaximum": 9,
                                "minimum": 1,
                            },
                            "region": {"minLength": 1, "maxLength": 9},
                        },
                    }
                ]
            },
            "storage": {
                "minItems": 1,
                "maxItems": 9,
                "uniqueItems": True,
                "items": {
                    "anyOf": [{"required": ["role"], "properties": {"role": {"enum": ["output"]}}}]
                },
            },
        },
    }

    lint_rule({**shipped, "requires": schema, "messages": {"": shipped["messages"][""]}}, "here")

    assert needs(schema) == (("compute", "gpus"), ("compute", "region"), ("storage", "*", "role"))
    assert len(KEYWORDS) == 18


def test_a_reference_opens_no_connection(evaluator, socket_disabled):
    """Should one slip by the linter, neither engine fetches it."""
    from policies.evaluator import EvaluationError

    schema = {"$ref": "http://schema.example/x.json"}

    with pytest.raises(EvaluationError):
        evaluator.compile(schema).is_valid({})
    with pytest.raises(EvaluationError):
        evaluator.compile(schema).failures({})


# --- folders ----------------------------------------------------------------------------------


def a_pack(
    folder, shipped_text, *, name="small", bases="public: {format: placet.facts/1, stage: train}\n"
):
    import json

    from policies.rule import LANGUAGES

    folder.mkdir()
    texts = dict.fromkeys(LANGUAGES, "text")
    document = {
        "format": "placet.pack/1",
        "id": name,
        "version": "1.0.0",
        "title": texts,
        "validity_minutes": 60,
        "obligations": [],
    }
    (folder / "pack.yaml").write_text(json.dumps(document), "utf-8")
    if bases is not None:
        (folder / "bases.yaml").write_text(bases, "utf-8")
    (folder / "scope-gpus.yaml").write_bytes(shipped_text)
    return folder


def test_a_pack_of_ones_own_loads_beside_the_shipped_ones(tmp_path):
    text = GPUS.read_bytes().replace(b"scope.gpus", b"own.gpus")
    folder = a_pack(tmp_path / "own", text)

    policy = load_policy([PACKS, folder])

    assert policy.rule("own.gpus") is not None
    assert policy.rule("none") is None
    assert Policy.from_bytes(policy.to_bytes()).digest == policy.digest


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "scope-gpus.yaml").unlink(), "without rules"),
        (lambda f: (f / "pack.yaml").unlink(), "expected `pack.yaml`"),
        (lambda f: (f / "pack.yaml").write_text("a: 1"), "pack breaks"),
        (lambda f: (f / "bases.yaml").write_text("a: ~"), "line 1"),
        (lambda f: (f / "bases.yaml").write_text("public: 1"), "not an object"),
        (lambda f: (f / "bases.yaml").unlink(), "no base `public`"),
        (lambda f: (f / "more.yaml").write_text("a: &x 1"), "more.yaml: line 1: anchor"),
        (lambda f: (f / "more.yaml").write_bytes(GPUS.read_bytes()), "twice"),
        (lambda f: (f / "more.yaml").write_text("- 1"), "rule breaks"),
    ],
)
def test_one_wrong_file_refuses_the_whole_load(tmp_path, spoil, message):
    folder = a_pack(tmp_path / "own", GPUS.read_bytes())
    spoil(folder)

    with pytest.raises(RuleError, match=message):
        load_policy([folder])


def test_a_pack_given_twice_is_refused(tmp_path):
    folder = a_pack(tmp_path / "own", GPUS.read_bytes())

    with pytest.raises(RuleError, match="expected each once"):
        policy_of(read_packs([folder, folder]))


EU_ROWS = """
table: country_sets
defaults: {source: abc, checked_on: "2026-01-01", confidence: primary, from: null, until: null}
rows: [{set: eu, members: [false]}]
"""
TWICE = """
table: regions
defaults: {source: abc, checked_on: "2026-01-01", confidence: primary}
rows: [{provider: a, region: b, country: FR}, {provider: a, region: b, country: CA}]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "expected `table`"),
        ("- 1", "expected `table`"),
        ("a: ~", "line 1"),
        ("table: regions\ndefaults: {}\nrows: {}", "list of rows"),
        ("table: regions\ndefaults: {}\nrows: [1]", "breaks `type`"),
        ("table: regions\ndefaults: {}\nrows: [{provider: a}]", "breaks `required`"),
        ("table: odd\ndefaults: {}\nrows: []", "additionalProperties"),
        (EU_ROWS, "breaks `type`"),
        (TWICE, "twice"),
    ],
)
def test_a_wrong_reference_table_is_refused(tmp_path, text, message):
    (tmp_path / "x.yaml").write_text(text, "utf-8")

    with pytest.raises(ReferenceDataError, match=message):
        load_reference(tmp_path)


def test_a_norwegian_row_stays_norwegian(tmp_path):
    (tmp_path / "x.yaml").write_text(
        'table: regions\ndefaults: {source: abc, checked_on: "2026-01-01", confidence: primary}\n'
        "rows: [{provider: a, region: b, country: NO}]",
        "utf-8",
    )

    assert load_reference(tmp_path).regions["a", "b"]["country"] == "NO"


@pytest.mark.parametrize(
    "site",
    [
        {},
        {"country": "fr", "declared_by": "prn_1", "checked_on": "2026-11-30"},
        {"country": "FR"},
        {"country": "FR", "declared_by": "prn_1", "checked_on": "2026-11-30", "trusted": True},
    ],
)
def test_a_misshapen_site_is_refused(site):
    with pytest.raises(ReferenceDataError):
        load_reference(site=site)


def test_reference_data_read_back_the_same(reference):
    again = Reference.from_bytes(reference.to_bytes())

    assert (again.digest, again.to_bytes()) == (reference.digest, reference.to_bytes())
    assert again.rows("nothing") == ()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"format":"placet.reference/2","site":null,"tables":{}}']
)
def test_stored_reference_data_are_checked(data):
    with pytest.raises(ReferenceDataError):
        Reference.from_bytes(data)


def _stored(policy, **change):
    from audit.canonical import canonical, parse

    return canonical({**parse(policy.to_bytes()), **change})


def test_a_stored_policy_is_checked(policy):
    unsafe = {**policy.rules[0].document, "requires": {"$ref": "http://schema.example/x"}}
    for data, message in (
        (b"", "policy"),
        (b"[]", "expected the members"),
        (_stored(policy, more=1), "expected the members"),
        (_stored(policy, format="placet.policy/2"), "expected format"),
        (_stored(policy, rules={}), "lists"),
        (_stored(policy, rules=[1]), "rule breaks"),
        (_stored(policy, packs=[{}]), "pack breaks"),
        (_stored(policy, rules=[unsafe]), "refused"),
    ):
        with pytest.raises(RuleError, match=message):
            Policy.from_bytes(data)
