"""Who calls, and what they may do.

Tokens are bearer secrets, stored as SHA-256. Roles and teams are read again at every request.
Roles: *submitter* (asks for jobs and deployments of their teams), *officer* (decides), *auditor*
(reads everything, exports), *admin* (principals and tokens).
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum

from sqlmodel import Session, select

from audit.event import Actor, EventKind
from service.clock import Clock, later, seconds
from service.ids import Prefix, new_id
from service.problems import Conflict, Forbidden, NotFound, Unauthenticated, field_problem
from service.tables import Principal, Token
from service.transaction import SYSTEM, Transaction

_TEAM = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")  # as requests spell it
_SECRET_PREFIX = "plc_"  # noqa: S105 — the visible start of every token, for secret scanners


class Role(StrEnum):
    """What a principal may do."""

    SUBMITTER = "submitter"
    OFFICER = "officer"
    AUDITOR = "auditor"
    ADMIN = "admin"


@dataclass(frozen=True)
class Caller:
    """The authenticated principal of one request."""

    id: str
    kind: str
    roles: frozenset[Role]
    teams: frozenset[str]

    @property
    def actor(self) -> Actor:
        """Name the caller as entries do: by pseudonym."""
        return Actor(kind=self.kind, ref=self.id, auth="token")

    def sees(self, team: str) -> bool:
        """Say whether the caller may see what belongs to `team`."""
        return team in self.teams or bool(self.roles & {Role.OFFICER, Role.AUDITOR, Role.ADMIN})

    def require(self, *roles: Role) -> None:
        """Refuse a caller who has none of these roles.

        Raises:
            Forbidden: names the roles that would do.
        """
        if not self.roles & set(roles):
            raise Forbidden(f"needs the role {' or '.join(roles)}; ask an admin to grant it")

    def require_person(self, refused: str) -> None:
        """Refuse a service account; `refused` says what it may not do, as "cannot decide".

        Raises:
            Forbidden: the caller is no person.
        """
        if self.kind != "human":
            raise Forbidden(f"a service account {refused}; a person has to")

    def require_team(self, team: str) -> None:
        """Refuse a caller who is not a member of `team`.

        Raises:
            Forbidden: names the caller's teams.
        """
        if team not in self.teams:
            mine = ", ".join(sorted(self.teams)) or "none"
            raise Forbidden(f"you are not a member of team `{team}`; your teams: {mine}")


def authenticate(session: Session, secret: str, clock: Clock) -> Caller:
    """Turn a bearer secret into the caller.

    Raises:
        Unauthenticated: unknown, expired or revoked token, or a disabled principal. The message
            does not say which of the first two, so that tokens cannot be probed.
    """
    hashed = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
    token = session.exec(select(Token).where(Token.secret_sha256 == hashed)).one_or_none()
    if token is None or token.expires_at <= seconds(clock()):
        raise Unauthenticated("the token is unknown or expired; ask an admin for a new one")
    principal = session.get_one(Principal, token.principal_id)
    if token.revoked_at is not None or principal.disabled_at is not None:
        raise Unauthenticated("the token was revoked; ask an admin for a new one")
    return Caller(
        id=principal.id,
        kind=principal.kind,
        roles=frozenset(Role(role) for role in principal.roles),
        teams=frozenset(principal.teams),
    )


def create_principal(
    tx: Transaction,
    actor: Actor = SYSTEM,
    *,
    name: str,
    kind: str,
    roles: list[Role],
    teams: list[str],
) -> Principal:
    """Add a principal. The name stays out of the log.

    Raises:
        Unprocessable: an empty name, no role, a team whose name is no slug, or a kind other than
            ``human`` and ``service``.
    """
    if not name.strip():
        raise field_problem("/name", "is empty; give the name colleagues know")
    if kind not in {"human", "service"}:
        raise field_problem("/kind", f"expected `human` or `service`, got `{kind}`")
    _check_grants(roles, teams)
    row = Principal(
        id=new_id(Prefix.PRINCIPAL),
        entry_id="",
        kind=kind,
        name=name.strip(),
        roles=sorted(set(roles)),
        teams=sorted(set(teams)),
    )
    tx.record(
        EventKind.PRINCIPAL_CREATED,
        row,
        actor=actor,
        data={"roles": list(row.roles), "teams": list(row.teams)},
    )
    return row


def find_principal(session: Session, principal_id: str) -> Principal:
    """Return a principal by its id.

    Raises:
        NotFound: there is none.
    """
    row = session.get(Principal, principal_id)
    if row is None:
        raise NotFound(f"no principal `{principal_id}`; list them with `placet principal list`")
    return row


def change_principal(
    tx: Transaction,
    actor: Actor = SYSTEM,
    *,
    principal_id: str,
    roles: list[Role],
    teams: list[str],
) -> Principal:
    """Give a principal other roles and teams; they count from its next request on.

    Raises:
        NotFound: no such principal. Conflict: it is disabled.
        Unprocessable: no role, or a team whose name is no slug.
    """
    _check_grants(roles, teams)
    row = find_principal(tx.session, principal_id)
    if row.disabled_at is not None:
        raise Conflict(f"`{principal_id}` is disabled since {row.disabled_at}; add a new principal")
    row.roles, row.teams = sorted(set(roles)), sorted(set(teams))
    tx.record(
        EventKind.PRINCIPAL_CHANGED,
        row,
        actor=actor,
        data={"roles": list(row.roles), "teams": list(row.teams)},
    )
    return row


def disable_principal(
    tx: Transaction, actor: Actor = SYSTEM, *, principal_id: str, clock: Clock
) -> Principal:
    """Disable a principal for good: no token of theirs works any more. Twice changes nothing.

    Raises:
        NotFound: no such principal.
    """
    row = find_principal(tx.session, principal_id)
    if row.disabled_at is None:
        row.disabled_at = seconds(clock())
        tx.record(EventKind.PRINCIPAL_DISABLED, row, actor=actor, data={})
    return row


def _check_grants(roles: list[Role], teams: list[str]) -> None:
    for team in teams:
        if not _TEAM.fullmatch(team):
            raise field_problem("/teams", f"expected a name like `ward-3`, got {team[:40]!r}")
    if not roles:
        raise field_problem("/roles", f"is empty; choose from {', '.join(Role)}")


def issue_token(
    tx: Transaction, actor: Actor = SYSTEM, *, principal_id: str, clock: Clock, days: int
) -> tuple[Token, str]:
    """Issue a token for 1 to 366 days; the secret is returned once and never stored.

    Raises:
        NotFound: no such principal.
        Unprocessable: a lifetime out of range.
    """
    if not 1 <= days <= 366:
        raise field_problem("/days", f"expected 1 to 366, got {days}")
    if find_principal(tx.session, principal_id).disabled_at is not None:
        raise Conflict(f"`{principal_id}` is disabled; add a new principal")
    secret = _SECRET_PREFIX + secrets.token_urlsafe(32)
    row = Token(
        id=new_id(Prefix.TOKEN),
        entry_id="",
        principal_id=principal_id,
        secret_sha256=hashlib.sha256(secret.encode()).hexdigest(),
        expires_at=later(clock(), days=days),
    )
    tx.record(
        EventKind.TOKEN_ISSUED,
        row,
        actor=actor,
        data={"token": row.id, "expires_at": row.expires_at},
    )
    return row, secret


def revoke_token(tx: Transaction, actor: Actor = SYSTEM, *, token_id: str, clock: Clock) -> Token:
    """Revoke a token; it stops working with the commit. Revoking twice changes nothing.

    Raises:
        NotFound: no such token.
    """
    row = tx.session.get(Token, token_id)
    if row is None:
        raise NotFound(f"no token `{token_id}`; list them with `placet token list`")
    if row.revoked_at is None:
        row.revoked_at = seconds(clock())
        tx.record(EventKind.TOKEN_REVOKED, row, actor=actor, data={"token": row.id})
    return row
