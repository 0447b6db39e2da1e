"""Which categories and classes of data a job touches: derived facts of its tags.

A tag is one row of the table `categories`: `health.fr.hds` implies `art9.health`, which implies
`pd.basic`, and each row says which classes (`personal`, `special`, …) it belongs to. A tag that
is not listed leaves everything that rests on it unknown.
"""

import datetime as dt
import functools
from collections.abc import Mapping
from typing import Any

from policies.places import Facts
from policies.reference import Reference

CLASSES = (
    "personal",
    "special",
    "health",
    "criminal",
    "sensitive",
    "restricted",
    "gov_sensitive",
    "tdm_reserved",
    "dora",
)


def closure(tags: list[str], reference: Reference) -> frozenset[str] | None:
    """Return the tags in their one spelling with all they imply; None when one is not listed.

    `health.fr.hds` implies `art9.health`, which implies `pd.basic`; `personal` is `pd.basic`.
    """
    return _closure(tuple(tags), reference)


@functools.lru_cache(maxsize=1024)
def _closure(tags: tuple[str, ...], reference: Reference) -> frozenset[str] | None:
    found: set[str] = set()
    todo = list(tags)
    while todo:
        row = reference.categories.get(todo.pop())
        if row is None:
            return None
        if row["same_as"] is not None:
            todo.append(row["same_as"])
        elif row["tag"] not in found:
            found.add(row["tag"])
            todo += row["implies"]
    return frozenset(found)


def dataset_tags(item: Mapping[str, Any], reference: Reference) -> frozenset[str] | None:
    """Return declared and detected tags of a dataset; None while either is not known.

    An empty declaration is not "no personal data" (that is the tag `none`): it is no answer.
    """
    declared, detected = item.get("categories_declared"), item.get("categories_detected")
    if not declared or detected is None:
        return None
    return closure([*declared, *detected], reference)


def classes_of(tags: frozenset[str], reference: Reference) -> frozenset[str]:
    """Return the classes (`personal`, `special`, …) that the tags belong to."""
    return frozenset(c for tag in tags for c in reference.categories[tag]["classes"])


def data_classes(facts: Mapping[str, Any], reference: Reference, on: dt.date) -> Facts:
    """Derive which classes of data the job touches; {} while one dataset's tags are unknown.

    `french_health` is health data of French origin: tagged so, or health data with subjects in
    a territory of the HDS regime; absent while the subjects' countries are unknown.
    """
    items = facts.get("datasets") or []
    tags = [dataset_tags(item, reference) for item in items]
    known = [found for found in tags if found is not None]
    if not items or len(known) != len(items):
        return {}
    together = frozenset[str]().union(*known)
    classes = classes_of(together, reference)
    found: Facts = {name: name in classes for name in CLASSES}
    found["categories"] = sorted(together)
    territory = reference.members("hds_territory", on)
    origins = [
        _is_french_health(item, classes_of(own, reference), territory)
        for item, own in zip(items, known, strict=True)
    ]
    if True in origins:
        found["french_health"] = True
    elif None not in origins:
        found["french_health"] = False
    return found


def _is_french_health(
    item: Mapping[str, Any], classes: frozenset[str], territory: frozenset[str]
) -> bool | None:
    if "french_health" in classes:
        return True
    if "health" not in classes:
        return False
    countries = item.get("data_subject_countries")
    if not countries or not territory:
        return None
    return not territory.isdisjoint(countries)


def by_severity(tags: frozenset[str], reference: Reference) -> Facts:
    """Count undeclared tags by what the vocabulary says of a tag that was not declared."""
    severe = sum(reference.categories[tag].get("when_undeclared", "deny") == "deny" for tag in tags)
    return {
        "undeclared_categories": len(tags),
        "undeclared_severe": severe,
        "undeclared_ordinary": len(tags) - severe,
    }
