"""`placet policy` with keys and the service: sign a bundle, put it in force, watch it."""

from pathlib import Path

from service.commands.grammar import Subparsers, command, remote

_EXTRA = "policies,client"


def add_commands(subparsers: Subparsers) -> None:
    """Add them beside the room's own."""
    parser = command(
        subparsers,
        "sign",
        "sign a bundle with a maintainer's key; the service wants two maintainers",
        handler="bundles:sign",
        examples="openssl genpkey -algorithm ed25519 -out ana.pem && chmod 600 ana.pem\n"
        "placet policy sign policy-7.json --key ana.pem --name ana",
        extra="service",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a bundle; it is rewritten")
    parser.add_argument("--key", type=Path, required=True, help="PEM file of an Ed25519 key")
    parser.add_argument("--name", required=True, help="the key's name, as the service knows it")
    parser = remote(
        subparsers,
        "activate",
        "put a signed bundle in force, or try it in the shadow",
        handler="bundles:activate",
        examples="placet policy activate policy-7.json --reason 'DORA rules, decided 30 November'\n"
        "placet policy activate policy-8.json --shadow --reason 'two weeks beside number 7'",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a bundle that two people signed")
    parser.add_argument("--reason", required=True, help="why now; kept sealed beside the log")
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="let it decide beside the policy in force",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask again at a terminal")
    remote(
        subparsers,
        "current",
        "say which policy and reference data are in force",
        handler="bundles:current",
        examples="placet policy current\nplacet policy current --json",
    )
    parser = remote(
        subparsers,
        "differences",
        "list where the policy in the shadow came to another verdict",
        handler="bundles:differences",
        examples="placet policy differences\nplacet policy differences --since 2026-12-01 --json",
    )
    parser.add_argument("--since", metavar="DATE", help="only since then, YYYY-MM-DD")
    for name in ("activate", "current", "differences"):
        subparsers.choices[name].set_defaults(extra=_EXTRA)
