"""First look for personal and health data in text rows, at registration.

It finds e-mail addresses, telephone numbers in international form, IBANs with valid check digits
(ISO 13616, modulo 97), dates of birth behind a keyword, and health codes or words that only make
sense about a patient. It counts; it keeps no value it saw. What it does not find is not thereby
absent: the result is *detected*, never *clean*.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

DETECTORS_VERSION = "placet.detectors/1"

_EMAIL = re.compile(
    r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}"
)
_PHONE = re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]?\d){7,14}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_BIRTH = re.compile(
    r"(?i)\b(?:born on|date of birth|n[ée]e? le|date de naissance|geboren am|geburtsdatum|"
    r"fecha de nacimiento|data de nascimento|data urodzenia)\W{0,3}\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
)
_PATIENT = re.compile(
    r"(?i)\b(?:patient|patiente|patientin|paciente|pacjent(?:ka|a)?)\b[^.\n]{0,80}"
    r"\b(?:[A-TV-Z]\d{2}(?:\.\d{1,2})?|diagnos\w+|HIV|HbA1c|chemotherap\w+|oncolog\w+)\b"
)
_EXAMPLE_DOMAINS = ("example.org", "example.com", "example.net", ".example", ".invalid", ".test")


@dataclass(frozen=True)
class Detection:
    """What the detectors counted.

    Attributes:
        counts: hits by detector name.
        categories: data categories that the hits imply, sorted.
        num_rows: rows looked at; all of them.
    """

    counts: dict[str, int]
    categories: tuple[str, ...]
    num_rows: int


def detect(rows: Iterable[str]) -> Detection:
    """Count what the rows show; one pass, constant memory."""
    counts: Counter[str] = Counter()
    num_rows = 0
    for row in rows:
        num_rows += 1
        counts["email"] += sum(_real_address(hit) for hit in _EMAIL.findall(row))
        counts["phone"] += len(_PHONE.findall(row))
        counts["iban"] += sum(_iban_valid(hit) for hit in _IBAN.findall(row))
        counts["date_of_birth"] += len(_BIRTH.findall(row))
        counts["patient_statement"] += len(_PATIENT.findall(row))
    found = {name: count for name, count in sorted(counts.items()) if count}
    categories = set()
    if found.keys() & {"email", "phone", "iban", "date_of_birth"}:
        categories.add("personal")
    if "patient_statement" in found and categories:
        categories.add("health")
    return Detection(counts=found, categories=tuple(sorted(categories)), num_rows=num_rows)


def _real_address(address: str) -> bool:
    # RFC 2606 reserves these for examples; nobody can have a mailbox there.
    return not address.lower().endswith(_EXAMPLE_DOMAINS)


def _iban_valid(text: str) -> bool:
    iban = text.replace(" ", "")
    if not 15 <= len(iban) <= 34:
        return False
    digits = "".join(str(int(char, 36)) for char in iban[4:] + iban[:4])
    return int(digits) % 97 == 1
