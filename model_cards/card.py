"""The model card, `placet.model-card/1`: what a model is, from what, by whom, and how good."""

from model_cards import document
from model_cards.evidence import Evidence


def build(evidence: Evidence) -> bytes:
    """Write the model card in canonical form; the same evidence gives the same bytes."""
    return document.build("model-card", evidence)
