"""The transparency record of a deployment, `placet.transparency/1`.

What people who meet the system, and those who run it, can be told: the notices, purpose, limits,
oversight, contacts, versions, decision and approvals.

Source: Regulation (EU) 2024/1689 Art. 13(3) and Art. 50 (text of 2026-07-27).
"""

from model_cards import document
from model_cards.evidence import Evidence


def build(evidence: Evidence) -> bytes:
    """Write the transparency record in canonical form; same evidence, same bytes."""
    return document.build("transparency", evidence)
