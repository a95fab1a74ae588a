"""Secrets in what programs say."""

from pathlib import Path

import pytest

from tuner.host import secrets
from tuner.host.secrets import hold_back, redact_file, redacted

SECRETS = {"DB_PASSWORD": "correct horse", "HF_TOKEN": "hf_abcdef", "HOME": "/home/me",
           "PIN_SECRET": "1234", "TF_API_KEY_LIKE_KNOB": "0.123456"}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("no secret in /home/me", "no secret in /home/me"),
        ("login with correct horse failed", "login with *** (DB_PASSWORD) failed"),
        ("hf_abcdef, hf_abcdef", "*** (HF_TOKEN), *** (HF_TOKEN)"),
        ("postgres://me:pw@host:5432/db is down", "postgres://***@host:5432/db is down"),
        ("mysql://me@host/db?a=b&password=pw&c=d", "mysql://me@host/db?a=b&password=***&c=d"),
        ("redis://:pw@host", "redis://***@host"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("1234 items at 0.123456", "1234 items at 0.123456"),  # too short; it tunes
    ],
)
def test_secrets_are_left_out_and_the_rest_stays(text: str, kept: str) -> None:
    assert redacted(text, SECRETS) == kept


def test_a_variable_that_holds_a_secret_by_the_users_word_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever its name and its length; a longer secret is not left half when it holds another."""
    monkeypatch.setattr(secrets, "_HELD_BACK", set())
    known = {"SHOP": "abc", "SHOP_2": "abcdef"}
    assert redacted("abc abcdef", known) == "abc abcdef"
    hold_back(known)
    assert redacted("abc abcdef", known) == "*** (SHOP) *** (SHOP_2)"


def test_a_log_is_written_anew_whatever_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "correct horse")
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe correct horse \xff")
    redact_file(log)
    assert log.read_bytes() == b"\xff\xfe *** (DB_PASSWORD) \xff"
    redact_file(tmp_path / "none")
