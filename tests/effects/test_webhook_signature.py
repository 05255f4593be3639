"""Signatures of webhooks: receivers of both kinds accept ours, we accept theirs, and nothing else passes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast.effects import signature
from holdfast.effects.signature import SignatureRefused, Verified, check_secret, new_secret, sign, verify

NOW = 1_760_000_000
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODIES = [
    pytest.param(b"", id="empty"),
    pytest.param(b'{"event_type":"PASSPORT_SIGNED"}', id="json"),
    pytest.param('{"title":"Übergröße 漢字 🔧"}'.encode(), id="unicode"),
    pytest.param(b'{ "a" : 1 ,\r\n\t"b":2 }\n', id="spaces"),
    pytest.param(bytes(range(256)), id="every byte"),
    pytest.param(b"\x00" * 1000, id="zeros"),
    pytest.param(b"x" * 5_000_000, id="5 MB"),
]
SECRETS = st.one_of(
    st.builds(new_secret), st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda s: s[:2] != "wh")
)
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)


# Document 004, as its receivers have it.
def verify_signature(secret: str, body_bytes: bytes, signature_header: str) -> bool:
    expected = hmac.new(secret.encode(), body_bytes, hashlib.sha256).hexdigest()
    provided = signature_header.removeprefix("sha256=")
    return hmac.compare_digest(expected, provided)


def signed(body: bytes, secrets: Any = SECRET, at: float = NOW, prefix: str = "BPC") -> dict[str, str]:
    return sign(body, secrets, "evt_1", "1f0c", "PASSPORT_SIGNED", at, prefix)


def only(headers: dict[str, str], *begins: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower().startswith(begins)}


def reason(body: bytes, headers: Any, secrets: Any = SECRET, **options: Any) -> str:
    with pytest.raises(SignatureRefused) as refused:
        verify(body, headers, secrets, **{"now": NOW, **options})
    assert isinstance(refused.value, ValueError)
    return refused.value.reason


def test_the_headers_are_those_of_document_004_and_of_standard_webhooks() -> None:
    assert signed(b"{}") == {
        "X-BPC-Signature": "sha256=" + hmac.new(SECRET.encode(), b"{}", hashlib.sha256).hexdigest(),
        "X-BPC-Event-Type": "PASSPORT_SIGNED",
        "X-BPC-Delivery-Id": "1f0c",
        "webhook-id": "evt_1",
        "webhook-timestamp": "1760000000",
        "webhook-signature": Webhook(SECRET).sign("evt_1", datetime.fromtimestamp(NOW, UTC), "{}"),
    }


def test_a_published_example_of_standard_webhooks_is_signed_as_published() -> None:
    body = b'{"test": 2432232314}'
    headers = sign(body, SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", "d", "t", 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("body", BODIES)
def test_the_verifier_of_document_004_accepts_every_kind_of_body(body: bytes) -> None:
    for secret in (SECRET, new_secret(), "a secret of their own, ñ"):
        headers = signed(body, secret)
        assert verify_signature(secret, body, headers["X-BPC-Signature"])
        assert not verify_signature(secret, body + b" ", headers["X-BPC-Signature"])


@given(body=st.binary(), secret=SECRETS)
def test_the_verifier_of_document_004_accepts_any_body_and_secret(body: bytes, secret: str) -> None:
    assert verify_signature(secret, body, signed(body, [secret, new_secret()])["X-BPC-Signature"])


@given(text=st.text(), message=IDS)
def test_the_package_standardwebhooks_accepts_ours(text: str, message: str) -> None:
    old, new = new_secret(), new_secret()
    body = text.encode("utf-8", "replace")
    headers = sign(body, [new, old], message, "d", "t", time.time())
    for secret in (old, new):
        Webhook(secret).verify(body, headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(body, headers, json_parse=False)


@given(text=st.text(st.characters(exclude_categories=["Cs"])), message=IDS, raw=st.booleans())
def test_we_accept_what_the_package_standardwebhooks_signs(text: str, message: str, raw: bool) -> None:
    secret = "their own words" if raw else new_secret()
    at = datetime.fromtimestamp(NOW, UTC)
    theirs = Webhook(secret.encode() if raw else secret).sign(message, at, text)
    headers = {"Webhook-Id": message, "Webhook-Timestamp": str(NOW), "Webhook-Signature": theirs}
    assert verify(text.encode(), headers, secret, now=NOW) == Verified("standard", 0, message, NOW)


@given(body=st.binary(), secrets=st.lists(SECRETS, min_size=1, max_size=4, unique=True), data=st.data())
def test_a_receiver_with_any_of_the_valid_secrets_accepts_by_both_schemes(
    body: bytes, secrets: list[str], data: st.DataObject
) -> None:
    headers, held = signed(body, secrets), data.draw(st.sampled_from(secrets))
    assert verify(body, headers, held, now=NOW).scheme == "standard"
    assert verify(body, only(headers, "x-"), held, prefix="BPC").scheme == "plain"
    assert verify(body, headers, secrets[::-1], now=NOW).secret == 0


def test_a_flipped_bit_anywhere_in_body_id_time_or_signature_is_refused() -> None:
    body = '{"amount": 1250, "to": "Zoë"}'.encode()
    headers = only(signed(body), "webhook-")
    verify(body, headers, SECRET, now=NOW)
    flips = 0
    for name in ("body", *headers):
        whole = body if name == "body" else headers[name].encode()
        for place in range(len(whole) * 8):
            other = bytearray(whole)
            other[place // 8] ^= 1 << place % 8
            sent = headers if name == "body" else headers | {name: other.decode("latin-1")}
            reason(bytes(other) if name == "body" else body, sent)
            flips += 1
    assert flips > 700


@given(body=st.binary(min_size=1), data=st.data())
def test_a_flipped_bit_in_any_body_is_refused_by_every_verifier(body: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(body) * 8 - 1))
    other = bytearray(body)
    other[place // 8] ^= 1 << place % 8
    headers = signed(body)
    assert reason(bytes(other), headers) == "mismatch"
    assert reason(bytes(other), only(headers, "x-"), prefix="BPC") == "mismatch"
    assert not verify_signature(SECRET, bytes(other), headers["X-BPC-Signature"])


@given(data=st.data())
def test_a_flipped_bit_in_the_plain_signature_is_refused(data: st.DataObject) -> None:
    header = signed(b"{}")["X-BPC-Signature"]
    place = data.draw(st.integers(0, len(header) * 7 - 1))
    other = bytearray(header.encode())
    other[place // 7] ^= 1 << place % 7
    assert reason(b"{}", {"X-BPC-Signature": other.decode()}, prefix="BPC") == "mismatch"


def test_a_signature_has_one_spelling_though_base64_has_several() -> None:
    headers = signed(b"{}")
    text = headers["webhook-signature"].removeprefix("v1,")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = text[:-2] + letters[letters.index(text[-2]) ^ 1] + "="
    assert base64.b64decode(twin) == base64.b64decode(text)
    assert reason(b"{}", headers | {"webhook-signature": "v1," + twin}) == "mismatch"


@pytest.mark.parametrize(("off", "expected"), [(-301, "old"), (301, "early")])
def test_a_request_from_another_time_is_refused_with_its_age(off: int, expected: str) -> None:
    headers = signed(b"{}", at=NOW + off)
    assert reason(b"{}", headers) == expected
    assert verify(b"{}", headers, SECRET, now=NOW, tolerance=302).timestamp == NOW + off
    with pytest.raises(SignatureRefused, match=rf"\{off:+d} s from now, 300 allowed"):
        verify(b"{}", headers, SECRET, now=NOW)


def test_the_edge_of_the_tolerance_is_allowed_and_the_wall_clock_is_the_default() -> None:
    for off in (-300, 300):
        verify(b"{}", signed(b"{}", at=NOW + off), SECRET, now=NOW)
    verify(b"{}", signed(b"{}", at=time.time()), SECRET)
    with pytest.raises(SignatureRefused, match="too old"):
        verify(b"{}", signed(b"{}", at=NOW), SECRET)


def test_a_recorded_request_cannot_be_repeated_by_leaving_its_timestamp_out() -> None:
    headers = only(signed(b"{}", at=NOW - 9999), "x-")
    assert reason(b"{}", headers) == "missing"
    with pytest.raises(SignatureRefused, match="pass prefix='bpc' to accept that, which has no timestamp"):
        verify(b"{}", headers, SECRET)


@pytest.mark.parametrize("gone", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_where_one_header_of_the_three_is_present_all_must_be(gone: str) -> None:
    headers = signed(b"{}")
    del headers[gone]
    assert reason(b"{}", headers, prefix="BPC") == "missing"
    assert reason(b"{}", headers | {gone: ""}, prefix="BPC") == "missing"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("webhook-timestamp", "1760000000.5", "malformed"),
        ("webhook-timestamp", "+1760000000", "malformed"),
        ("webhook-timestamp", "١٧٦٠٠٠٠٠٠٠", "malformed"),
        ("webhook-timestamp", "9" * 5000, "malformed"),
        ("webhook-timestamp", "01760000000", "mismatch"),
        ("webhook-id", "evt_1.1760000000", "malformed"),
        ("webhook-id", "evt\ud8001", "malformed"),
        ("webhook-signature", "v1,", "mismatch"),
        ("webhook-signature", "v1", "mismatch"),
        ("webhook-signature", "ñ\ud800", "mismatch"),
        ("webhook-signature", "v1,x " * 21, "malformed"),
        ("X-BPC-Signature", "x", None),
    ],
)
def test_malformed_headers_are_refused_in_words(name: str, value: str, expected: str | None) -> None:
    headers = signed(b"{}") | {name: value}
    if expected is None:  # where the standard headers are, they decide
        verify(b"{}", headers, SECRET, now=NOW, prefix="BPC")
    else:
        assert reason(b"{}", headers) == expected


@given(headers=st.dictionaries(st.sampled_from(list(signed(b""))) | st.text(), st.text()), body=st.binary())
def test_whatever_the_headers_are_the_result_is_a_refusal(headers: dict[str, str], body: bytes) -> None:
    assert reason(body, headers, prefix="BPC") in ("missing", "malformed", "old", "early", "mismatch")


def test_names_of_headers_may_be_in_any_case_and_given_as_pairs_of_bytes() -> None:
    headers = signed(b"{}")
    verify(b"{}", {name.upper(): value for name, value in headers.items()}, SECRET, now=NOW)
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    verify(b"{}", pairs, SECRET, now=NOW)
    verify(b"{}", [*pairs, pairs[0]], SECRET, now=NOW)
    assert reason(b"{}", [*pairs, (b"Webhook-Id", b"evt_2")]) == "malformed"
    verify(bytearray(b"{}"), headers, SECRET, now=NOW)


def test_every_signature_is_compared_with_every_secret_though_the_first_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    secrets = [SECRET, new_secret(), new_secret()]
    headers = signed(b"{}", secrets)
    monkeypatch.setattr(signature.hmac, "compare_digest", compare)
    verify(b"{}", headers, secrets, now=NOW)
    assert len(compared) == 9


def test_secrets_are_random_and_long() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert secret.startswith("whsec_")
        assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
        check_secret(secret)


@pytest.mark.parametrize("secret", ["", "  ", "whsec_", "whsec_not base64!", "whsec_a-b_", "whsec_ñ", "whsec_A"])
def test_secrets_that_cannot_sign_are_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="secret"):
        check_secret(secret)
    if secret.strip():
        with pytest.raises(ValueError, match="make one with new_secret"):
            signed(b"{}", secret)


@pytest.mark.parametrize("secret", ["a" * 15, "whsec_AAAABBBBCCCC", "hush " + " " * 20])
def test_a_secret_that_is_short_is_not_taken_but_verified(secret: str) -> None:
    with pytest.raises(ValueError, match="at least 16 characters"):
        check_secret(secret)
    check_secret("a" * 16)
    verify(b"{}", signed(b"{}", secret), secret, now=NOW)


def test_no_secret_and_an_empty_secret_never_verify() -> None:
    for secrets in ("", [], [SECRET, ""]):
        with pytest.raises(ValueError, match=r"no secret|empty") as refused:
            verify(b"{}", signed(b"{}"), secrets, now=NOW)
        assert not isinstance(refused.value, SignatureRefused)


def test_a_parsed_body_is_refused_because_parsing_changes_bytes() -> None:
    with pytest.raises(TypeError, match="bytes as received, not str"):
        verify("{}", signed(b"{}"), SECRET)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "value"), [(0, "evt\r\nX-Other: 1"), (0, "a.b"), (0, ""), (1, "\x00"), (2, "größe"), (2, " padded")]
)
def test_an_invalid_header_value_is_not_signed(part: int, value: str) -> None:
    parts = ["evt_1", "d", "t"]
    parts[part] = value
    with pytest.raises(ValueError, match=r"a webhook's (id|delivery id|event type) must"):
        sign(b"{}", SECRET, *parts, NOW)


@pytest.mark.parametrize("prefix", ["", "A B", "A:B", "A\r\nB", "x" * 41])
def test_a_prefix_that_cannot_be_in_a_header_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="a header prefix must have"):
        signed(b"{}", prefix=prefix)


def test_the_file_works_alone_where_nothing_is_installed(tmp_path: Path) -> None:
    shutil.copy(signature.__file__, tmp_path / "copied.py")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import copied; s = copied.new_secret();"
        "h = copied.sign(b'x', s, 'i', 'd', 't', 5); print(copied.verify(b'x', h, s, now=5).id)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "i\n"
