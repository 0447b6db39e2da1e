"""DSSE envelopes: a signature over typed bytes, here over the manifest of an export.

What is signed is the pre-authentication encoding

    "DSSEv1" SP len(type) SP type SP len(payload) SP payload        lengths in ASCII decimal

and the envelope is canonical JSON with exactly one signature:

    {"payload":"<base64>","payloadType":"application/vnd.placet.manifest+json",
     "signatures":[{"keyid":"example.com/log+530d903a","sig":"<base64>"}]}

`keyid` is the key's name and its 4-byte ID, as in a vkey. One signature, because a second one by a
key that the reader does not have could be changed without being noticed.

Source: github.com/secure-systems-lab/dsse, protocol.md and envelope.md v1.0.0.
"""

from collections.abc import Iterable

from audit.canonical import CanonicalError, canonical, parse_canonical
from audit.keys import NoteError, Signer, VerifyKey, encode_base64, strict_base64

MAX_ENVELOPE_BYTES = 64 * 1_048_576


class DsseError(ValueError):
    """An envelope is malformed or does not verify."""


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload_type: str, payload: bytes, signer: Signer) -> bytes:
    """Write the envelope of `payload` signed by `signer`, as canonical JSON."""
    signature = {
        "keyid": keyid_of(VerifyKey.parse(signer.vkey)),
        "sig": encode_base64(signer.sign(pae(payload_type, payload))),
    }
    return canonical(
        {
            "payload": encode_base64(payload),
            "payloadType": payload_type,
            "signatures": [signature],
        }
    )


def read_envelope(envelope: bytes, payload_type: str) -> tuple[bytes, str, bytes]:
    """Return (payload, keyid, signature) of an envelope without checking the signature.

    Raises:
        DsseError: malformed, another payload type, or not exactly one signature.
    """
    try:
        match parse_canonical(envelope, max_bytes=MAX_ENVELOPE_BYTES):
            case {
                "payload": str(payload),
                "payloadType": str(found),
                "signatures": [{"keyid": str(keyid), "sig": str(sig), **other}],
                **more,
            } if not other and not more and found == payload_type:
                return strict_base64(payload), keyid, strict_base64(sig)
    except (CanonicalError, NoteError) as cause:
        raise DsseError(f"malformed envelope: {cause}") from cause
    raise DsseError(f"malformed envelope: expected one signature over `{payload_type}`")


def open_envelope(
    envelope: bytes, payload_type: str, keys: Iterable[VerifyKey]
) -> tuple[bytes, VerifyKey]:
    """Verify an envelope; return its payload and the trusted key that signed it.

    Raises:
        DsseError: malformed, signed by no trusted key, or the signature does not verify.
    """
    payload, keyid, signature = read_envelope(envelope, payload_type)
    key = next((key for key in keys if keyid_of(key) == keyid), None)
    if key is None:
        raise DsseError("the envelope is not signed by a trusted key")
    if not key.verify(signature, pae(payload_type, payload)):
        raise DsseError(f"the signature of `{keyid}` does not verify")
    return payload, key


def keyid_of(key: VerifyKey) -> str:
    """Name a key as signatures do: its name and its 4-byte ID."""
    return f"{key.name}+{key.id.hex()}"
