"""What a server of one's own costs a month against renting by the hour, from dated rows.

    own       (price - residual) / months + interest on the average capital + maintenance
              + rack + share of staff + electricity
    electricity (busy W · busy hours + idle W · other hours) · PUE · price of a kWh
    rented    GPU-hours · price

One GPU-hour is one hour of the *rented* flavor; the own server does it in the ratio of the two
peak rates. Break-even is the number of those hours a month from which owning costs less; there is
none when it lies beyond what the server can do. All arithmetic is exact; results are rounded up to
whole cents and hours. Amounts are before tax.

    compare(hosting, price_micros=2800000, speed=Fraction(989, 756), gpu_hours=2000)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from policies.overlay import OverlayRow, key_of, lay_over
from policies.reference import Reference, ReferenceDataError, Row
from policies.workload import MAX_INTEGER

MONTHS_PER_YEAR = 12
_SENSITIVE = (
    "server_price_cents",
    "electricity_micros_per_kwh",
    "power_watts",
    "colocation_cents_per_month",
    "staff_cents_per_year",
)
RENT = "rent"
_SWING = Fraction(1, 5)


class CostError(ValueError):
    """A price, a row or a number is refused; the message says what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Monthly:
    """Cents a month of an own server by term."""

    amortisation: int
    capital: int
    maintenance: int
    colocation: int
    staff: int
    electricity: int

    @property
    def total(self) -> int:
        """Return the sum."""
        return sum(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Both sides at one number of rented GPU-hours a month; `own` is None beyond the server."""

    gpu_hours: int
    own: Monthly | None
    rented_cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Break-even hours when one input is a fifth lower and a fifth higher."""

    input: str
    lower: int | None
    higher: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The answer of `compare`."""

    capacity_hours: int
    break_even_hours: int | None
    loads: tuple[Load, ...]
    sensitivity: tuple[Sensitivity, ...]


def compare(
    hosting: Mapping[str, int],
    *,
    price_micros: int,
    speed: Fraction,
    gpu_hours: Sequence[int],
) -> Comparison:
    """Compare an own server with renting.

    Args:
        hosting: Values of table `hosting` by id.
        price_micros: Rent of one GPU for one hour, in millionths of the euro.
        speed: Own GPU's peak rate over the rented one's.
        gpu_hours: Rented GPU-hours a month to show both sides for.

    Raises:
        CostError: a row is missing, or a value makes no sense.
    """
    _check_values(hosting)
    rent = Fraction(price_micros, 10_000)
    capacity = _capacity(hosting) * speed
    swings = []
    for name in (*_SENSITIVE, RENT):
        ends = []
        for factor in (1 - _SWING, 1 + _SWING):
            swung: dict[str, Fraction | int] = dict(hosting)
            if name != RENT:
                swung[name] *= factor
            ends.append(_break_even(swung, rent * factor if name == RENT else rent, speed))
        swings.append(Sensitivity(input=name, lower=ends[0], higher=ends[1]))
    return Comparison(
        capacity_hours=int(capacity),
        break_even_hours=_break_even(hosting, rent, speed),
        loads=tuple(_load(hosting, rent, speed, hours) for hours in gpu_hours),
        sensitivity=tuple(swings),
    )


def own_server(hosting: Mapping[str, int], own_hours: Fraction) -> Monthly:
    """Return the cents a month of a server whose GPUs compute `own_hours` hours together."""
    terms = _fixed(hosting)
    terms["electricity"] += _electricity_per_hour(hosting) * own_hours
    return Monthly(**{name: _up(value) for name, value in terms.items()})


def _fixed(hosting: Mapping[str, Fraction | int]) -> dict[str, Fraction]:
    """Return what it costs while it idles all month, in exact cents."""
    price = Fraction(hosting["server_price_cents"])
    residual = price * Fraction(hosting["residual_permille"], 1000)
    yearly = {
        "capital": (price + residual) / 2 * Fraction(hosting["capital_permille_per_year"], 1000),
        "maintenance": price * Fraction(hosting["maintenance_permille_per_year"], 1000),
        "staff": hosting["staff_cents_per_year"] * Fraction(hosting["staff_permille"], 1000),
    }
    kilowatt_hours = Fraction(hosting["idle_watts"], 1000) * hosting["hours_per_month"]
    return {
        "amortisation": (price - residual) / hosting["amortisation_months"],
        **{name: value / MONTHS_PER_YEAR for name, value in yearly.items()},
        "colocation": Fraction(hosting["colocation_cents_per_month"]),
        "electricity": kilowatt_hours * _cents_per_kwh(hosting),
    }


def _cents_per_kwh(hosting: Mapping[str, Fraction | int]) -> Fraction:
    pue = Fraction(hosting["pue_permille"], 1000)
    return pue * Fraction(hosting["electricity_micros_per_kwh"]) / 10_000


def _electricity_per_hour(hosting: Mapping[str, Fraction | int]) -> Fraction:
    """Return what one GPU's hour of computing adds to an idle server, in exact cents."""
    watts = max(Fraction(hosting["power_watts"]) - hosting["idle_watts"], Fraction(0))
    return watts / 1000 / hosting["server_gpus"] * _cents_per_kwh(hosting)


def _capacity(hosting: Mapping[str, Fraction | int]) -> Fraction:
    return Fraction(hosting["server_gpus"] * hosting["hours_per_month"])


def _break_even(
    hosting: Mapping[str, Fraction | int], rent: Fraction, speed: Fraction
) -> int | None:
    saved = rent - _electricity_per_hour(hosting) / speed
    if saved <= 0:
        return None
    hours = sum(_fixed(hosting).values()) / saved
    return _up(hours) if hours <= _capacity(hosting) * speed else None


def _load(hosting: Mapping[str, int], rent: Fraction, speed: Fraction, hours: int) -> Load:
    own_hours = hours / speed
    fits = own_hours <= _capacity(hosting)
    return Load(
        gpu_hours=hours,
        own=own_server(hosting, own_hours) if fits else None,
        rented_cents=_up(hours * rent),
    )


def _up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def _check_values(hosting: Mapping[str, int]) -> None:
    needed = (
        *_SENSITIVE, "residual_permille", "amortisation_months", "capital_permille_per_year",
        "maintenance_permille_per_year", "idle_watts", "pue_permille", "staff_permille",
        "server_gpus", "hours_per_month",
    )  # fmt: skip
    for name in needed:
        if name not in hosting:
            raise CostError(f"table `hosting` has no row `{name}`: add it with --prices")
    for name in ("amortisation_months", "server_gpus", "hours_per_month"):
        if hosting[name] < 1:
            raise CostError(f"hosting.{name}: expected at least 1, got {hosting[name]}")
    if hosting["pue_permille"] < 1000:
        raise CostError("hosting.pue_permille: expected at least 1000, the computers themselves")
    if hosting["power_watts"] < hosting["idle_watts"]:
        raise CostError("hosting.power_watts: expected at least hosting.idle_watts")
    if hosting["residual_permille"] > 1000:
        raise CostError("hosting.residual_permille: expected at most 1000, the whole price")


def own_rows(reference: Reference, table: str, rows: Sequence[Row]) -> Reference:
    """Return the reference data with rows replaced by key or added; the given one is unchanged.

    Raises:
        CostError: there is no such table, or a row is not as the schema says.
    """
    try:
        return lay_over(reference, [OverlayRow(table, key_of(table, row), row) for row in rows])
    except ReferenceDataError as cause:
        raise CostError(str(cause)) from cause


def set_value(reference: Reference, assignment: str) -> Reference:
    """Apply `TABLE.ID=INTEGER`, as in `hosting.power_watts=9000` or `prices.h100-1-gpu=2500000`.

    A price is in millionths of the currency per hour. The row becomes the user's own: `declared`.

    Raises:
        CostError: not of this form, an unknown row, or not a whole number from 0 to 2^53-1.
    """
    place, equals, text = assignment.partition("=")
    table, dot, name = place.partition(".")
    if not (equals and dot) or table not in ("hosting", "estimates", "prices"):
        raise CostError(
            f"--set {assignment}: expected hosting.ID=N, estimates.ID=N or prices.FLAVOR=N"
        )
    is_number = text.isascii() and text.isdigit() and len(text) <= 16
    if not is_number or int(text) > MAX_INTEGER:
        raise CostError(f"--set {place}: expected a whole number from 0 to 2^53-1, got `{text}`")
    column, member = ("flavor", "price_micros_per_hour") if table == "prices" else ("id", "value")
    rows = [row for row in reference.rows(table) if row[column] == name]
    if not rows:
        known = ", ".join(sorted({str(row[column]) for row in reference.rows(table)}))
        raise CostError(f"--set {place}: there is no such row; known: {known}")
    own = {"source": "given with --set", "confidence": "declared"}
    return own_rows(reference, table, [{**row, member: int(text), **own} for row in rows])
