"""What a permit says, read without its key: for exports, and for auditors who have no key.

Nothing is verified here. The trainer checks the signature before it runs (`trainer.permit`); an
auditor checks that the digest in the log is this token's and that it says what the log says
(`audit.documents`).
"""

import base64
import binascii

from audit.canonical import CanonicalError, JsonValue, parse


class ClaimsError(ValueError):
    """The token is no JSON Web Token with an object inside."""


def claims_of(token: bytes) -> dict[str, JsonValue]:
    """Read the claims of a permit, the middle one of its three parts (RFC 7515, May 2015).

    Raises:
        ClaimsError: not three parts, not base64url, or not a JSON object.
    """
    parts = token.split(b".")
    if len(parts) != 3:
        raise ClaimsError(f"expected a token of 3 parts, got {len(parts)}")
    padded = parts[1] + b"=" * (-len(parts[1]) % 4)
    try:
        claims = parse(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, CanonicalError) as error:
        raise ClaimsError(f"the claims cannot be read: {error}") from error
    if not isinstance(claims, dict):
        raise ClaimsError("expected claims in a JSON object")
    return claims
