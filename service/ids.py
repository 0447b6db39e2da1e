"""Identifiers: a type prefix and a UUIDv7, for instance ``job_01kbb3f3m8e7x8t0v5j3r6y1qz``.

The UUID is spelt in lower-case Crockford base32.
They sort by creation time, carry no meaning and no personal data, and say what they name.
Source: TypeID specification 0.3 (shape), RFC 9562 section 5.7 (UUIDv7).
"""

import re
import secrets
import time
from enum import StrEnum

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PATTERN = re.compile(r"[a-z]{2,4}_[0-7][0-9a-hjkmnp-tv-z]{25}")


class Prefix(StrEnum):
    """What an identifier names."""

    PRINCIPAL = "prn"
    TOKEN = "tok"  # noqa: S105 — a type prefix, not a secret
    DATASET = "ds"
    BASE_MODEL = "bm"
    JOB = "job"
    DECISION = "dec"
    APPROVAL = "apr"
    PERMIT = "prm"
    RUN = "run"
    MODEL_VERSION = "mv"
    DEPLOYMENT = "dep"
    ENTRY = "evt"
    EXPORT = "exp"
    WAIVER = "wvr"
    REFERENCE = "ref"
    POLICY = "pol"


def new_id(prefix: Prefix) -> str:
    """Make a fresh identifier: 48 bits of milliseconds, then 74 random bits."""
    millis = time.time_ns() // 1_000_000
    value = millis << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    digits = "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
    return f"{prefix}_{digits}"


def is_id(text: str, prefix: Prefix) -> bool:
    """Say whether `text` is an identifier of this type in its only spelling."""
    return text.startswith(f"{prefix}_") and _PATTERN.fullmatch(text) is not None
