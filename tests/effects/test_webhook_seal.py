"""Secrets at rest."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigurationError
from holdfast.effects.seal import is_sealed, new_key, seal, unseal
from holdfast.effects.signature import new_secret
from holdfast.settings import Settings

KEY, OTHER = new_key(), new_key()


@given(secret=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_secret_comes_back_whatever_it_is(secret: str) -> None:
    for keys in ("", KEY, f"{KEY},{OTHER}"):
        assert unseal(seal(secret, keys), keys) == secret


def test_without_a_key_a_secret_is_stored_as_it_is_and_marked_so() -> None:
    assert seal("whsec_abc", "") == seal("whsec_abc", " , ") == "plain:whsec_abc"
    assert not is_sealed("plain:whsec_abc")
    assert unseal("plain:fernet:x", KEY) == "fernet:x"


def test_a_sealed_secret_shows_nothing_and_is_different_each_time() -> None:
    secret = new_secret()
    sealed = [seal(secret, KEY) for _ in range(2)]
    assert all(is_sealed(each) and secret[6:20] not in each for each in sealed)
    assert sealed[0] != sealed[1]


def test_the_first_key_seals_and_every_key_opens() -> None:
    old = seal("s", OTHER)
    both = f" {KEY} , {OTHER} "
    assert unseal(old, both) == "s"
    new = seal("s", both)
    assert unseal(new, KEY) == "s"
    with pytest.raises(ConfigurationError, match="no key in HOLDFAST_SECRET_KEYS opens"):
        unseal(new, OTHER)


def test_secrets_stored_before_there_was_a_key_still_open() -> None:
    assert unseal(seal("s", ""), KEY) == "s"


def test_a_sealed_secret_without_a_key_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="set HOLDFAST_SECRET_KEYS to the key"):
        unseal(seal("s", KEY), "")


def test_a_changed_seal_does_not_open() -> None:
    sealed = seal("s", KEY)
    for place in range(len("fernet:"), len(sealed)):
        other = "A" if sealed[place] != "A" else "B"
        if sealed[place + 1 :].strip("="):  # the last letter's low bits are no part of what is sealed
            with pytest.raises(ConfigurationError, match="opens a webhook's secret"):
                unseal(sealed[:place] + other + sealed[place + 1 :], KEY)
    with pytest.raises(ConfigurationError, match="neither 'plain:' nor 'fernet:'"):
        unseal("whsec_abc", KEY)


@pytest.mark.parametrize("key", ["short", "x" * 44, "ñ" * 44, KEY[:-4]], ids=["short", "not base64", "letters", "cut"])
def test_a_key_that_is_none_is_refused_by_its_place_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="key 2 of 2 in HOLDFAST_SECRET_KEYS") as refused:
        seal("s", f"{KEY},{key}")
    assert key not in str(refused.value)
    assert KEY not in str(refused.value)


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    key = new_key()
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'holdfast-jobs\[webhooks\]'"):
        seal("s", key)
    assert seal("s", "") == "plain:s"


def test_the_keys_come_from_the_environment_and_are_not_shown() -> None:
    settings = Settings.load({"HOLDFAST_SECRET_KEYS": KEY})
    assert settings.secret_keys == KEY
    assert KEY not in repr(settings)
