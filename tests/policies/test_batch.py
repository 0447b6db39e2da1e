"""Many records at once come out as each one alone."""

import pytest

from policies.batch import CHUNK, replay_all
from policies.decision import GateError
from policies.gate import replay
from policies.reference import ReferenceDataError
from policies.rule import RuleError


@pytest.fixture(scope="module")
def inputs(policy, reference):
    return policy.to_bytes(), reference.to_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_record_is_answered_in_order(judge, base, inputs, workers):
    made = [judge(base(name)).record for name in ("public", "claimed", "deploy")]
    changed = made[0].replace(b'"verdict":"', b'"verdict":"x')
    records = [*made, changed, b"{}"] * (CHUNK // 4)

    results = list(replay_all(records, *inputs, workers=workers))

    alone = [replay(record, *inputs) for record in (*made, changed)]
    assert [r.identical for r in alone] == [True, True, True, False]
    assert [r for r in results if not isinstance(r, GateError)] == alone * (CHUNK // 4)
    assert [isinstance(r, GateError) for r in results[:5]] == [False] * 4 + [True]


@pytest.mark.parametrize("workers", [1, 2])
def test_malformed_inputs_end_it(judge, base, inputs, workers):
    record = judge(base("public")).record

    with pytest.raises(RuleError):
        list(replay_all([record], b"{}", inputs[1], workers=workers))
    with pytest.raises(ReferenceDataError):
        list(replay_all([record], inputs[0], b"{}", workers=workers))
