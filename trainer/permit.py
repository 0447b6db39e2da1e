"""Check the permit before any data is opened, and use it once.

A permit is a JSON Web Token (RFC 7519) in compact form, header
`{"alg":"EdDSA","typ":"placet-permit+jwt"}`, payload `trainer.contract.PermitClaims`. `verify` is a
numbered procedure; the numbers stand in the code:

 (1) the token is there and is at most 16 KiB
 (2) the header says EdDSA and `placet-permit+jwt`, and names no key and no critical extension
 (3) the issuer's key is an Ed25519 public key in PEM
 (4) the signature is right (RFC 8037); no other algorithm is ever tried
 (5) audience, then every claim: present, known, in range
 (6) now is within [nbf - 60 s, exp): a minute of clock difference is forgiven at the start only
 (7) it is for this run, this specification, its dataset and base model, this output, this long

`claim` then writes `<output>/permit.json` if there is none: another permit there is a refusal, the
same one a resumption, unless `<output>/report.json` says that the run has ended.

Source: RFC 8725 (February 2020), sections 3.1, 3.8, 3.9 and 3.11 (JWT best current practices).
"""

from typing import NoReturn

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from trainer.contract import PERMIT_AUDIENCE, PERMIT_TYPE, JobSpec, PermitClaims
from trainer.refusal import Reason, RefusedError
from trainer.store import get, store_for
from trainer.strict import ContractError, Reader, canonical, digest, parse

MAX_TOKEN_BYTES = 16_384
NBF_LEEWAY_S = 60
CLAIM_FORMAT = "placet.permit-use/1"
ASK_AGAIN = "ask the service to dispatch the job again"


def verify(
    token: str, key_pem: bytes, *, spec_bytes: bytes, run_id: str, output: str, now_s: int
) -> PermitClaims:
    """Return the claims of a permit that allows exactly this run now.

    Args:
        token: The compact token; surrounding white space is ignored.
        key_pem: The issuer's Ed25519 public key.
        spec_bytes: The specification's bytes as stored.
        run_id: The id the caller gave to this run.
        output: URI the caller wants results under.
        now_s: Seconds since 1970-01-01T00:00:00Z.

    Raises:
        RefusedError: with the first reason found, in the order of the module's list.
    """
    token = token.strip()
    if not token or len(token) > MAX_TOKEN_BYTES:  # (1)
        _refuse(Reason.PERMIT_MISSING, "expected a permit of at most 16 KiB, got none")
    _check_header(token)  # (2)
    payload = _signed_payload(token, _public_key(key_pem))  # (3) (4)
    claims = _claims(payload)  # (5)
    if now_s >= claims.exp:  # (6)
        _refuse(Reason.PERMIT_EXPIRED, f"the permit expired {now_s - claims.exp} s ago")
    if now_s < claims.nbf - NBF_LEEWAY_S:
        _refuse(
            Reason.PERMIT_NOT_YET_VALID,
            f"the permit is valid in {claims.nbf - now_s} s only; check this machine's clock",
        )
    _check_binding(claims, spec_bytes=spec_bytes, run_id=run_id, output=output)  # (7)
    return claims


def _check_header(token: str) -> None:
    try:
        header = jwt.get_unverified_header(token)
    except jwt.InvalidTokenError as cause:
        raise RefusedError(
            Reason.PERMIT_MALFORMED,
            f"expected a compact JSON Web Token, got other text; {ASK_AGAIN}",
        ) from cause
    if header.get("alg") != "EdDSA":
        _refuse(
            Reason.PERMIT_ALGORITHM, f"expected `alg` EdDSA, got {str(header.get('alg'))[:20]!r}"
        )
    if header.get("typ") != PERMIT_TYPE:
        _refuse(Reason.PERMIT_TYPE, f"expected `typ` {PERMIT_TYPE}, got another kind of token")
    extra = sorted(set(header) - {"alg", "typ", "kid"})
    if extra:
        _refuse(
            Reason.PERMIT_TYPE, f"expected no header members but alg, typ, kid, got {extra[:4]}"
        )


def _public_key(key_pem: bytes) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(key_pem)
    except (ValueError, UnsupportedAlgorithm) as cause:
        raise RefusedError(
            Reason.PERMIT_KEY, "expected the issuer's public key in PEM, got other bytes"
        ) from cause
    if not isinstance(key, Ed25519PublicKey):
        _refuse(Reason.PERMIT_KEY, "expected an Ed25519 issuer key, got another kind of key")
    return key


def _signed_payload(token: str, key: Ed25519PublicKey) -> bytes:
    try:
        decoded = jwt.PyJWS().decode_complete(token, key, algorithms=["EdDSA"])
    except jwt.InvalidTokenError as cause:
        raise RefusedError(
            Reason.PERMIT_SIGNATURE,
            f"the permit is not signed by the issuer's key (--issuer-key); {ASK_AGAIN}",
        ) from cause
    payload: bytes = decoded["payload"]
    return payload


def _claims(payload: bytes) -> PermitClaims:
    try:
        members = parse(payload, max_bytes=MAX_TOKEN_BYTES)
        if isinstance(members, dict) and members.get("aud") != PERMIT_AUDIENCE:
            _refuse(Reason.PERMIT_AUDIENCE, f"expected a permit for {PERMIT_AUDIENCE}, got another")
        if not isinstance(members, dict):
            _refuse(Reason.PERMIT_CLAIMS, "expected the permit's claims to be an object")
        return PermitClaims.from_claims(members)
    except ContractError as cause:
        raise RefusedError(Reason.PERMIT_CLAIMS, f"{cause}; {ASK_AGAIN}") from cause


def _check_binding(claims: PermitClaims, *, spec_bytes: bytes, run_id: str, output: str) -> None:
    if claims.sub != run_id:
        _refuse(Reason.PERMIT_RUN, f"the permit is for run {claims.sub}, not for {run_id[:100]}")
    if claims.spec != digest(spec_bytes):
        _refuse(Reason.PERMIT_SPEC, "the permit is for other specification bytes than --spec")
    try:
        spec = JobSpec.from_bytes(spec_bytes)
    except ContractError as cause:
        raise RefusedError(Reason.SPEC_MALFORMED, f"{cause}; correct the job") from cause
    if claims.dataset != spec.dataset_digest:
        _refuse(Reason.PERMIT_DATASET, "the permit is for another dataset than the specification's")
    if claims.base_model != spec.base_model_digest:
        _refuse(Reason.PERMIT_BASE_MODEL, "the permit is for another base model")
    if claims.output != output:
        _refuse(Reason.PERMIT_OUTPUT, f"the permit allows output under {claims.output} only")
    if spec.max_minutes > claims.max_minutes:
        _refuse(
            Reason.PERMIT_MINUTES,
            f"{spec.max_minutes} minutes are asked for, {claims.max_minutes} permitted",
        )


def claim(claims: PermitClaims) -> bool:
    """Use the permit: mark its output as this permit's, and say whether this is a resumption.

    Raises:
        RefusedError: when another permit holds the output, or this one is used up.
        OSError: when the store fails.
    """
    uri = f"{claims.output}/permit.json"
    body = canonical({"format": CLAIM_FORMAT, "jti": claims.jti})
    if store_for(uri).put_if_absent(uri, body):
        return False
    try:
        reader = Reader(parse(get(uri, max_bytes=4096)), "permit.json")
        reader.constant("format", CLAIM_FORMAT)
        holder = reader.text("jti")
    except ContractError as cause:
        raise RefusedError(
            Reason.PERMIT_REUSED, f"{cause}: the output is not empty; choose another output"
        ) from cause
    if holder != claims.jti:
        _refuse(
            Reason.PERMIT_REUSED, f"the output belongs to permit {holder}; choose another output"
        )
    if is_used_up(claims.output):
        _refuse(Reason.PERMIT_USED_UP, "this permit's run has ended, see report.json in the output")
    return True


def is_used_up(output: str) -> bool:
    """Say whether a run under `output` has ended with a report."""
    try:
        get(f"{output}/report.json", max_bytes=16_777_216)
    except FileNotFoundError:
        return False
    return True


def _refuse(reason: Reason, message: str) -> NoReturn:
    hint = "" if ";" in message else f"; {ASK_AGAIN}"
    raise RefusedError(reason, message + hint)
