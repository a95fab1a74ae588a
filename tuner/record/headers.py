"""Headers of requests to a user's server, with secrets read from the environment.

    --header "X-API-Key: env:API_KEY"    --header "Authorization: Bearer env:TOKEN"

Files and messages hold `env:API_KEY`. The process that sends the requests reads the variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tuner.errors import UsageError

Headers = tuple[tuple[str, str], ...]
"""Name and value as typed; env:NAME is replaced by the variable's value when it is sent."""
CONTENT_TYPE = "content-type"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2: a token."""
_VARIABLE = re.compile(r"(?<!\S)env:([A-Za-z_][A-Za-z0-9_]*)(?!\S)")
_OF_THE_CLIENT = ("content-length", "transfer-encoding", "connection", "expect")
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE)


def parse_headers(typed: Iterable[str]) -> Headers:
    """Read "Name: value" as typed; raises UsageError, without the value: it may be a secret."""
    found: dict[str, tuple[str, str]] = {}
    for text in typed:
        name, colon, value = text.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not _NAME.fullmatch(name):
            raise UsageError(
                '--header is not "Name: value"; write for instance "X-API-Key: env:API_KEY"'
            )
        if not value or not value.isprintable():
            raise UsageError(f"--header {name}: its value is empty, or holds control characters")
        if name.lower() in _OF_THE_CLIENT:
            raise UsageError(f"--header {name}: the client sets it by itself; leave it out")
        if name.lower() in found:
            raise UsageError(f"--header {name} is given twice; give it once")
        found[name.lower()] = name, value
    return tuple(found.values())


def variables_of(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of the variables that stand in headers."""
    return [name for _, value in headers for name in _VARIABLE.findall(value)]


def filled(headers: Headers, environment: Mapping[str, str]) -> dict[str, str]:
    """Return headers as they are sent; raises UsageError if a variable is not set."""
    for name in variables_of(headers):
        value = environment.get(name, "")
        if not value:
            raise UsageError(f"--header takes env:{name}, and {name} is not set (or is empty)")
        if not value.isprintable():
            raise UsageError(f"--header takes env:{name}, and {name} holds control characters")
    return {
        name: _VARIABLE.sub(lambda found: environment[found[1]], value) for name, value in headers
    }


def boundary(kind: str) -> str | None:
    """Return the boundary between the parts of a body; None if it has no parts.

    Raises UsageError for a multipart content type without a boundary.
    """
    if not kind.lower().startswith("multipart/"):
        return None
    found = _BOUNDARY.search(kind)
    if found is None:
        raise UsageError(
            f"--header Content-Type: {kind} names no boundary: add ; boundary=..., with what the "
            "first line of each request has after its two dashes"
        )
    return found[1] or found[2]


def without_names(headers: Headers) -> list[tuple[str, str]]:
    """Return what tells two lists of headers apart: not which variable a secret comes from."""
    return sorted((name.lower(), _VARIABLE.sub("env:", value)) for name, value in headers)
