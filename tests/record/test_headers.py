"""Headers of requests to a user's server: what is typed, kept and sent."""

import pytest

from tuner.app.request import service_of
from tuner.errors import UsageError
from tuner.record.headers import boundary, filled, parse_headers, variables_of, without_names

KEY, TOKEN = "X-API-Key: env:SHOP", "Authorization: Bearer env:TOKEN"


def test_a_secret_stands_in_headers_by_the_name_of_its_variable() -> None:
    headers = parse_headers([KEY, TOKEN, "Content-Type: image/png"])
    assert variables_of(headers) == ["SHOP", "TOKEN"]
    sent = filled(headers, {"SHOP": "open sesame", "TOKEN": "abc"})
    assert sent == {
        "X-API-Key": "open sesame",
        "Authorization": "Bearer abc",
        "Content-Type": "image/png",
    }


def test_the_same_secret_from_another_variable_is_the_same_request() -> None:
    assert without_names(parse_headers([KEY])) == without_names(parse_headers(["x-api-key: env:S"]))
    assert without_names(parse_headers(["A: 1"])) != without_names(parse_headers(["A: 2"]))


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["no colon"], 'is not "Name: value"'),
        (["bad name: hidden1"], 'is not "Name: value"'),
        (["X-API-Key:"], "is empty"),
        (["X-A: hidden1\r\nX-B: 2"], "holds control characters"),
        (["Content-Length: 3"], "the client sets it by itself"),
        ([KEY, "x-api-key: env:OTHER"], "is given twice"),
        (["X-API-Key: env:NOWHERE_SET"], "NOWHERE_SET is not set"),
        (["X-API-Key: hidden1"], "env:VARIABLE"),
        (["Cookie: id=hidden1"], "env:VARIABLE"),
        (["X-User: hidden1"], "env:VARIABLE"),  # what a shell made of $DB_PASSWORD
    ],
)
def test_a_header_that_cannot_be_sent_or_must_not_be_kept_is_refused_without_its_value(
    typed: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("DB_PASSWORD", "hidden1"), ("SHOP", "sesame"), ("OTHER", "sesame")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as refused:
        service_of(None, None, None, typed)
    assert expected in str(refused.value)
    assert "hidden1" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("image/png", None),
        ("multipart/form-data; boundary=tunes", "tunes"),
        ('Multipart/mixed; charset=x; Boundary="a b"', "a b"),
    ],
)
def test_only_a_multipart_content_type_has_a_boundary(kind: str, found: str | None) -> None:
    assert boundary(kind) == found


def test_a_multipart_content_type_without_a_boundary_is_refused() -> None:
    with pytest.raises(UsageError, match="names no boundary"):
        boundary("multipart/form-data")
