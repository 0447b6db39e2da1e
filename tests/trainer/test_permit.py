"""Permits: every refusal has a name, comes before data is opened, and ends in exit code 2."""

import base64
import hashlib
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trainer.contract import canonical, digest
from trainer.refusal import Exit

NOW = int(time.time())


@pytest.fixture
def sealed(world):
    """A world whose dataset and base model cannot be opened: whoever tries fails otherwise."""
    world.change(
        dataset_manifest_uri="file:///nowhere/at/all/manifest.json",
        base_model_uri="file:///nowhere/at/all/base",
    )
    return world


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(world):
    header = {"alg": "none", "typ": "placet-permit+jwt"}
    return f"{b64(json.dumps(header).encode())}.{b64(json.dumps(world.claims()).encode())}."


def confused(world):
    """HS256 with the public key's PEM as the shared secret."""
    header = b64(json.dumps({"alg": "HS256", "typ": "placet-permit+jwt"}).encode())
    body = f"{header}.{b64(json.dumps(world.claims()).encode())}"
    return f"{body}.{b64(hmac.new(world.public_pem(), body.encode(), hashlib.sha256).digest())}"


def forged(world):
    headers = {"typ": "placet-permit+jwt"}
    return jwt.encode(world.claims(), Ed25519PrivateKey.generate(), "EdDSA", headers=headers)


def altered(world):
    header, _, signature = world.sign(world.claims()).split(".")
    claims = world.claims(max_minutes=9999)
    return f"{header}.{b64(json.dumps(claims).encode())}.{signature}"


def without(name):
    def token(world):
        claims = world.claims()
        del claims[name]
        return world.sign(claims)

    return token


def claiming(**members):
    return lambda world: world.sign(world.claims(**members))


OTHER = digest(b"other")
MATRIX = [
    ("permit_missing", lambda _: " "),
    ("permit_malformed", lambda _: "not-a-token"),
    ("permit_algorithm", unsigned),
    ("permit_algorithm", confused),
    ("permit_type", lambda w: w.sign(w.claims(), typ="JWT")),
    ("permit_type", lambda w: w.sign(w.claims(), jwk={"kty": "OKP"})),
    ("permit_signature", forged),
    ("permit_signature", altered),
    ("permit_audience", claiming(aud="placet-service")),
    ("permit_audience", claiming(aud=["placet-trainer"])),
    ("permit_audience", without("aud")),
    ("permit_claims", without("iss")),
    ("permit_claims", without("exp")),
    ("permit_claims", claiming(extra=1)),
    ("permit_claims", claiming(exp="tomorrow")),
    ("permit_expired", claiming(exp=NOW - 1)),
    ("permit_not_yet_valid", claiming(nbf=NOW + 3600)),
    ("permit_run", claiming(sub="run_2")),
    ("permit_spec", claiming(spec=OTHER)),
    ("permit_dataset", claiming(dataset=OTHER)),
    ("permit_base_model", claiming(base_model=OTHER)),
    ("permit_output", claiming(output="file:///elsewhere")),
    ("permit_minutes", claiming(max_minutes=4)),
]


@pytest.mark.parametrize(("reason", "token"), MATRIX)
def test_a_wrong_permit_is_refused_before_data_is_opened(sealed, capfd, reason, token):
    code = sealed.train(token(sealed))

    assert code == Exit.REFUSED
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"refused: {reason}: ")
    assert err.count("\n") == 1
    assert "; " in err  # it says what to do
    assert [(e["kind"], e["reason"]) for e in sealed.events()] == [("refused", reason)]
    assert not sealed.out.exists()


def test_a_missing_permit_file_and_a_wrong_key_are_refused(sealed, capfd):
    sealed.write_inputs()
    request = sealed.request()
    request.permit.unlink()
    from trainer.run import train

    assert train(request) == Exit.REFUSED
    assert "permit_missing" in capfd.readouterr().err
    sealed.write_inputs()
    request.issuer_key.write_bytes(b"not a key")
    assert train(request) == Exit.REFUSED
    assert "permit_key" in capfd.readouterr().err


def test_a_right_permit_lets_the_dataset_be_opened_and_its_absence_is_told(sealed, capfd):
    assert sealed.train() == Exit.REFUSED
    assert "refused: dataset_unreadable: " in capfd.readouterr().err
    assert sealed.report().status == "refused"
    assert sealed.report().reason == "dataset_unreadable"


def test_a_permit_is_used_once(world, capfd):
    assert world.train() == Exit.DONE
    report = (world.out / "report.json").read_bytes()

    assert world.train() == Exit.REFUSED

    assert "refused: permit_used_up: " in capfd.readouterr().err
    assert (world.out / "report.json").read_bytes() == report


def test_another_permit_cannot_take_over_an_output(sealed, capfd):
    sealed.out.mkdir()
    body = canonical({"format": "placet.permit-use/1", "jti": "prm_0"})
    (sealed.out / "permit.json").write_bytes(body)

    assert sealed.train() == Exit.REFUSED
    assert "refused: permit_reused: " in capfd.readouterr().err
    (sealed.out / "permit.json").write_bytes(b"{}")
    assert sealed.train() == Exit.REFUSED
    assert "refused: permit_reused: " in capfd.readouterr().err


def test_a_refused_permit_loads_no_torch(sealed):
    import subprocess
    import sys
    from pathlib import Path

    root = Path(__file__).parents[2]
    sealed.write_inputs(claiming(sub="run_2")(sealed))
    script = (
        f"import sys; sys.path.insert(0, {str(root)!r}); from trainer.__main__ import main; "
        f"code = main({sealed.arguments()!r}); print(code, 'torch' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-c", script], check=True, capture_output=True, text=True
    )

    assert done.stdout == "2 False\n"
