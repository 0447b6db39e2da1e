"""Where an endpoint stands: an exact look-up of its host in dated reference data.

A label, a bucket name or a region code that somebody typed is never asked. A host that is in no
table has no place, and a rule that needs one then sees an unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from policies.reference import Reference

SITE = ("own-site", "site")


@dataclass(frozen=True)
class Place:
    """Provider, service and region by their ids in the reference data; None is unknown."""

    provider: str | None
    service: str | None
    region: str | None
    country: str | None

    def to_fact(self) -> dict[str, str | None]:
        """Render the members that rules look at."""
        return {"provider": self.provider, "service": self.service, "region": self.region}


NOWHERE = Place(provider=None, service=None, region=None, country=None)


@dataclass(frozen=True)
class Places:
    """The look-up.

    Args:
        endpoints: host → (provider, service, region), from the reference data.
        countries: (provider, region) → ISO country, from the reference data.
        site_hosts: hosts that the operator declares to stand on the own site.
    """

    endpoints: Mapping[str, tuple[str, str, str]]
    countries: Mapping[tuple[str, str], str]
    site_hosts: frozenset[str]

    @classmethod
    def by(cls, reference: Reference, site_hosts: frozenset[str]) -> Self:
        """Make the look-up of the reference data in force."""
        return cls(
            endpoints={
                str(row["host"]): (str(row["provider"]), str(row["service"]), str(row["region"]))
                for row in reference.rows("endpoints")
            },
            countries={key: str(row["country"]) for key, row in reference.regions.items()},
            site_hosts=site_hosts,
        )

    def of(self, endpoint: str) -> Place:
        """Find the place of an endpoint URL; a `file://` or SQLite endpoint is the own site."""
        parts = urlsplit(endpoint)
        if parts.scheme in {"file", "sqlite"} or (parts.hostname or "") in self.site_hosts:
            return self.site("storage")
        found = self.endpoints.get(parts.hostname or "")
        if found is None:
            return NOWHERE
        provider, service, region = found
        return Place(provider, service, region, self.countries.get((provider, region)))

    def site(self, service: str) -> Place:
        """Name the operator's own machine; its country is known only if it was declared."""
        return Place(SITE[0], service, SITE[1], self.countries.get(SITE))


@dataclass(frozen=True)
class Addresses:
    """The endpoints of everything that this installation writes to; where they stand is asked anew.

    Args:
        roles: role → endpoint URL, as the facts name roles.
        site_hosts: hosts that the operator declares to stand on the own site.
    """

    roles: Mapping[str, str]
    site_hosts: frozenset[str] = field(default=frozenset())

    def places(self, reference: Reference) -> Places:
        """Make the look-up by this reference data."""
        return Places.by(reference, self.site_hosts)

    def storage(self, reference: Reference) -> dict[str, Place]:
        """Say where each role stands by this reference data."""
        places = self.places(reference)
        return {role: places.of(endpoint) for role, endpoint in self.roles.items()}
