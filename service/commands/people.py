"""`placet principal` and `placet token`: who may call. For the operator, on the database itself."""

import argparse
from typing import Any

from sqlmodel import select

from service import principals
from service.clock import system_clock
from service.commands.errors import Status
from service.commands.operating import stored
from service.commands.output import fields, line, machine, table
from service.principals import Role
from service.tables import Principal, Token
from service.transaction import Transactions


def add_principal(arguments: argparse.Namespace) -> int:
    """Add a principal, with a token at once when asked to."""
    with stored(arguments) as transactions:
        added = add(
            transactions,
            name=arguments.name,
            kind=arguments.kind,
            roles=arguments.role,
            teams=arguments.team or [],
            token_days=arguments.token_days,
        )
    if arguments.json:
        machine(added)
        return Status.OK
    secret = added.pop("secret", None)
    fields(added)
    if secret is not None:
        _show_secret(secret)
    return Status.OK


def list_principals(arguments: argparse.Namespace) -> int:
    """List principals."""
    with stored(arguments) as transactions, transactions.read() as session:
        rows = [_principal(row) for row in session.exec(select(Principal).order_by(Principal.id))]
    if arguments.json:
        machine(rows)
    else:
        table(("id", "kind", "name", "roles", "teams", "disabled_at"), rows)
    return Status.OK


def change_principal(arguments: argparse.Namespace) -> int:
    """Give a principal other roles and teams."""
    with stored(arguments) as transactions, transactions.write() as tx:
        row = principals.change_principal(
            tx,
            principal_id=arguments.id,
            roles=[Role(role) for role in arguments.role],
            teams=arguments.team or [],
        )
        changed = _principal(row)
    (machine if arguments.json else fields)(changed)
    return Status.OK


def disable_principal(arguments: argparse.Namespace) -> int:
    """Disable a principal."""
    with stored(arguments) as transactions, transactions.write() as tx:
        row = principals.disable_principal(tx, principal_id=arguments.id, clock=system_clock)
        disabled = _principal(row)
    (machine if arguments.json else fields)(disabled)
    return Status.OK


def issue_token(arguments: argparse.Namespace) -> int:
    """Issue a token; its secret is shown once."""
    with stored(arguments) as transactions:
        issued = issue(transactions, principal=arguments.principal, days=arguments.days)
    if arguments.json:
        machine(issued)
        return Status.OK
    secret = issued.pop("secret")
    fields(issued)
    _show_secret(secret)
    return Status.OK


def list_tokens(arguments: argparse.Namespace) -> int:
    """List tokens; their secrets are stored nowhere."""
    with stored(arguments) as transactions, transactions.read() as session:
        rows = [_token(row) for row in session.exec(select(Token).order_by(Token.id))]
    if arguments.json:
        machine(rows)
    else:
        table(("id", "principal", "expires_at", "revoked_at"), rows)
    return Status.OK


def revoke_token(arguments: argparse.Namespace) -> int:
    """Revoke a token; it stops working at once."""
    with stored(arguments) as transactions:
        with transactions.write() as tx:
            row = principals.revoke_token(tx, token_id=arguments.id, clock=system_clock)
        revoked = _token(row)
    if arguments.json:
        machine(revoked)
    else:
        line(f"{revoked['id']} is revoked since {revoked['revoked_at']}")
    return Status.OK


def add(
    transactions: Transactions,
    *,
    name: str,
    kind: str,
    roles: list[str],
    teams: list[str],
    token_days: int | None,
) -> dict[str, Any]:
    """Add a principal, and a token for it unless `token_days` is None, in one transaction.

    Raises:
        Problem: a value is refused.
    """
    with transactions.write() as tx:
        row = principals.create_principal(
            tx, name=name, kind=kind, roles=[Role(role) for role in roles], teams=teams
        )
        tx.session.flush()
        added = _principal(row)
        if token_days is not None:
            token, secret = principals.issue_token(
                tx, principal_id=row.id, clock=system_clock, days=token_days
            )
            added |= {"token": token.id, "expires_at": token.expires_at, "secret": secret}
    return added


def issue(transactions: Transactions, *, principal: str, days: int) -> dict[str, Any]:
    """Issue a token; the secret is in the answer and nowhere else.

    Raises:
        Problem: no such principal, or a lifetime out of range.
    """
    with transactions.write() as tx:
        row, secret = principals.issue_token(
            tx, principal_id=principal, clock=system_clock, days=days
        )
        return {**_token(row), "secret": secret}


def _principal(row: Principal) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "name": row.name,
        "roles": row.roles,
        "teams": row.teams,
        "disabled_at": row.disabled_at,
    }


def _token(row: Token) -> dict[str, Any]:
    return {
        "id": row.id,
        "principal": row.principal_id,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    }


def _show_secret(secret: str) -> None:
    line()
    line("the token, shown this once; keep it where only its owner can read:")
    line(f"  {secret}")
