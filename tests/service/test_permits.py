"""Permits: what is signed, what is refused, and that the trainer agrees."""

import base64
import json
import stat
from concurrent.futures import ThreadPoolExecutor

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from service.permits import Issuer, PermitError, create_key, thumbprint, verify
from trainer.contract import PermitClaims

NOW = 1_796_038_800
DIGEST = "sha256:" + "ab" * 32
CLAIMS = {
    "iss": "placet",
    "aud": "placet-trainer",
    "sub": "run_1",
    "jti": "prm_1",
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + 1800,
    "job": "job_1",
    "document": DIGEST,
    "spec": DIGEST,
    "dataset": DIGEST,
    "base_model": DIGEST,
    "decision": DIGEST,
    "output": "file:///srv/out/run_1",
    "max_minutes": 60,
}


@pytest.fixture
def issuer(tmp_path) -> Issuer:
    return create_key(tmp_path / "permit.pem")


class TestKey:
    def test_it_is_created_once_and_only_for_its_owner(self, tmp_path):
        path = tmp_path / "permit.pem"

        first = create_key(path)

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert create_key(path).kid == first.kid == Issuer.from_pem(path).kid
        assert [entry.name for entry in tmp_path.iterdir()] == ["permit.pem"]

    def test_eight_starters_get_one_key(self, tmp_path):
        paths = [tmp_path / "permit.pem"] * 8
        with ThreadPoolExecutor(8) as pool:
            assert len({issuer.kid for issuer in pool.map(create_key, paths)}) == 1

    def test_a_key_that_others_can_read_is_refused(self, tmp_path):
        path = tmp_path / "permit.pem"
        create_key(path)
        path.chmod(0o640)

        with pytest.raises(PermitError, match=r"mode 640.*chmod 600"):
            Issuer.from_pem(path)

    def test_a_missing_key_and_a_missing_folder_are_explained(self, tmp_path):
        with pytest.raises(PermitError, match="create one with `create_key`"):
            Issuer.from_pem(tmp_path / "absent.pem")
        with pytest.raises(PermitError, match="check its folder"):
            create_key(tmp_path / "absent" / "permit.pem")

    def test_another_kind_of_key_is_refused(self, tmp_path):
        path = tmp_path / "permit.pem"
        path.write_bytes(
            generate_private_key(SECP256R1()).private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            )
        )
        path.chmod(0o600)
        with pytest.raises(PermitError, match="expected Ed25519"):
            Issuer.from_pem(path)

        path.write_bytes(b"nonsense")
        with pytest.raises(PermitError, match="no unencrypted private key"):
            Issuer.from_pem(path)

    def test_the_thumbprint_is_that_of_rfc_8037(self):
        x = base64.urlsafe_b64decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=")

        assert (
            thumbprint(Ed25519PublicKey.from_public_bytes(x))
            == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        )


class TestIssue:
    def test_a_permit_carries_type_key_id_and_claims(self, issuer):
        token = issuer.issue(CLAIMS)

        assert jwt.get_unverified_header(token) == {
            "alg": "EdDSA",
            "typ": "placet-permit+jwt",
            "kid": issuer.kid,
        }
        assert verify(token, issuer.public_pem(), at=NOW) == PermitClaims.from_claims(CLAIMS)
        assert issuer.issue(PermitClaims.from_claims(CLAIMS)) == token

    @pytest.mark.parametrize("name", sorted(CLAIMS))
    def test_each_claim_is_needed(self, issuer, name):
        claims = {key: value for key, value in CLAIMS.items() if key != name}

        with pytest.raises(PermitError, match=name):
            issuer.issue(claims)

    @pytest.mark.parametrize(
        "change",
        [
            {"exp": NOW},
            {"exp": NOW - 1},
            {"nbf": NOW - 1},
            {"nbf": NOW + 1800},
            {"aud": "anyone"},
            {"spec": "md5:00"},
            {"max_minutes": 0},
            {"output": "/tmp"},  # noqa: S108 — refused on purpose
            {"extra": 1},
            {"iat": 1.5},
        ],
    )
    def test_odd_claims_are_refused(self, issuer, change):
        with pytest.raises(PermitError):
            issuer.issue(CLAIMS | change)


class TestVerify:
    @pytest.mark.parametrize("at", [NOW - 1, NOW + 1800])
    def test_outside_its_lifetime_it_is_refused(self, issuer, at):
        with pytest.raises(PermitError, match="valid from"):
            verify(issuer.issue(CLAIMS), issuer.public_pem(), at=at)

    def test_each_changed_character_is_refused(self, issuer):
        token = issuer.issue(CLAIMS)
        header, payload, _ = token.split(".")
        for index in range(len(header) + 1, len(header) + len(payload), 7):
            changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
            with pytest.raises(PermitError):
                verify(changed, issuer.public_pem(), at=NOW)

    def test_another_issuer_is_refused(self, issuer):
        with pytest.raises(PermitError, match="not a permit of this issuer"):
            verify(Issuer(Ed25519PrivateKey.generate()).issue(CLAIMS), issuer.public_pem(), at=NOW)

    def test_another_kind_of_public_key_is_refused(self, issuer):
        other = generate_private_key(SECP256R1()).public_key()
        pem = other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

        for key in (pem, b"nonsense"):
            with pytest.raises(PermitError, match=r"expected an? .*public key"):
                verify(issuer.issue(CLAIMS), key, at=NOW)

    def test_other_types_and_algorithms_are_refused(self, issuer):
        other_type = jwt.PyJWS().encode(
            json.dumps(CLAIMS).encode(), issuer._key, algorithm="EdDSA", headers={"typ": "JWT"}
        )
        unsigned = jwt.PyJWS().encode(json.dumps(CLAIMS).encode(), "", algorithm="none")

        for token in (other_type, unsigned, "", "a.b.c", "nonsense"):
            with pytest.raises(PermitError):
                verify(token, issuer.public_pem(), at=NOW)


def test_the_trainer_accepts_the_form_and_refuses_the_wrong_run(issuer):
    permit = pytest.importorskip("trainer.permit")
    refused = pytest.importorskip("trainer.refusal").RefusedError

    with pytest.raises(refused, match="for run run_1"):
        permit.verify(
            issuer.issue(CLAIMS),
            issuer.public_pem(),
            spec_bytes=b"{}",
            run_id="run_2",
            output=CLAIMS["output"],
            now_s=NOW,
        )
