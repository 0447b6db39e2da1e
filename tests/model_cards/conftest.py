"""One realistic set of evidence, shared by the tests of this room."""

from pathlib import Path

import pytest

from model_cards import card, transparency
from model_cards.evidence import Evidence

GOLDEN = Path(__file__).parents[1] / "golden" / "model_cards"


@pytest.fixture(scope="session")
def golden():
    return GOLDEN


@pytest.fixture(scope="session")
def evidence():
    return Evidence.from_json((GOLDEN / "evidence.json").read_bytes())


@pytest.fixture(scope="session")
def card_bytes(evidence):
    return card.build(evidence)


@pytest.fixture(scope="session")
def record_bytes(evidence):
    return transparency.build(evidence)
