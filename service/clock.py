"""Instants in one spelling. Only the composition roots choose the clock; all others receive it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Read the system clock, aware and in UTC."""
    return datetime.now(UTC)


def seconds(instant: datetime) -> str:
    """Spell an instant to the second: ``2026-11-30T20:00:00Z``."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def millis(instant: datetime) -> str:
    """Spell an instant to the millisecond, as entries do: ``2026-11-30T20:00:00.123Z``."""
    utc = instant.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def instant(text: str) -> datetime:
    """Read an instant back from our own spelling."""
    return datetime.fromisoformat(text)


def later(start: datetime, *, minutes: int = 0, hours: int = 0, days: int = 0) -> str:
    """Spell the instant that lies this much after `start`."""
    return seconds(start + timedelta(minutes=minutes, hours=hours, days=days))
