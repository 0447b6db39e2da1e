"""Whose packages our rooms are: another distribution of the same name would overlay ours silently.

PyPI has distributions that install top-level packages `trainer`, `service` or `audit`. Installed
beside ours they replace modules of ours without a word, so this is checked at start and by
`placet doctor`, before any room is imported.
"""

import importlib.util
from importlib.metadata import packages_distributions
from pathlib import Path

DISTRIBUTION = "placet"
ROOMS = ("audit", "policies", "model_cards", "trainer", "service")


def foreign_rooms() -> dict[str, str]:
    """Return what is wrong with each room that is not ours alone; empty when all is well.

    A source checkout is ours: there, all rooms lie in one folder and belong to no distribution.
    """
    owners = packages_distributions()
    home = Path(__file__).resolve().parents[2]
    wrong = {}
    for room in ROOMS:
        strangers = sorted(set(owners.get(room, [])) - {DISTRIBUTION})
        found = importlib.util.find_spec(room)
        origin = None if found is None else found.origin
        if origin is None:
            wrong[room] = "is not installed; install placet again"
        elif strangers:
            wrong[room] = (
                f"is also in `{', '.join(strangers)}`; uninstall that, then install placet"
            )
        elif Path(origin).resolve().parent.parent != home:
            wrong[room] = (
                f"is imported from {Path(origin).parent}, not from {home}; remove it there"
            )
    return wrong
