"""Files altered as accidents, editors and attackers alter them: a part of them, or some bytes.

altered(seeds, tokens)   a parsed document with one to three parts deleted, renamed, doubled,
                         swapped, wrapped, or replaced by something that it never held
damaged(seeds)           a file with bytes cut, turned, put in, taken away, or of another file
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tomli_w
from hypothesis import strategies as st

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Token:
    """What stands in the file as it is, though no value is written so."""

    text: bytes


ESCAPES = "\x1b]0;owned\x07\x1b[2J"
MARKUP = "<script>alert(1)</script>|`x`{{ 7*7 }}"
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 10**6, 2**31, 2**53 + 1, 2**63, 2**70, -(2**70), 10**40,
    0.0, 0.5, 1.5, -1.5, 1e-320, 1e18, 1e308, -1e308,
    "", "x", "0", "1", "4", "true", "default", "none", "nan", "1e400", "=1/0", "=host.nothing",
    ESCAPES, MARKUP, "two\nlines\r\nand\tmore", "\x00", "\x7f\x85\u2028", "\u202eright to left",
    "é" * 40,
    "'; touch owned; $(touch owned) \"%n\" ${HOME} \\", "../../etc/passwd", "x" * 5000, "\ud800",
    [], {}, [[]], [0], [""], {"": 0}, {"x": {"y": [1, "z", None]}}, [[["a", 1]]],
)  # fmt: skip
_NESTED = 20_000
JSON_TOKENS = tuple(
    Token(text)
    for text in (
        b"NaN", b"-Infinity", b"1e400", b"-0", b"-0.0", b"00", b"1.", b"9" * 5000, b"9" * 400,
        b"0." + b"1" * 5000,
        b'"\xff\xfe"', b'"\\ud800"', b'"\\u0000\\u001b"', b"[" * _NESTED + b"]" * _NESTED,
        b'{"x":' * _NESTED + b"0" + b"}" * _NESTED, b"// no", b"", b"nul",
    )
)  # fmt: skip
TOML_TOKENS = tuple(
    Token(text)
    for text in (
        b"nan", b"-inf", b"1e400", b"-0.0", b"0x10", b"1_000", b"9" * 5000, b"1979-05-27",
        b"1979-05-27T07:32:00Z", b"07:32:00", b'"\xff\xfe"', b'"\\ud800"', b'"\\u0000\\u001b"',
        b"'\x1b'",
        b"[" * _NESTED + b"]" * _NESTED, b"{x=" * 2000 + b"0" + b"}" * 2000,
        b'"""\nx\ny"""', b"", b"# no",
    )
)  # fmt: skip

_MARK, _TWICE = "\ue000", "\ue001"
"""Of a token's place, and of a key that stands twice; private characters, which no seed holds."""


def _replaced(document: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """Return a document with what is at a path changed; the rest is shared."""
    if not path:
        return change(document)
    first, *rest = path
    if isinstance(document, dict):
        return {
            k: _replaced(v, tuple(rest), change) if k == first else v for k, v in document.items()
        }
    return [_replaced(v, tuple(rest), change) if i == first else v for i, v in enumerate(document)]


def _children(node: Any) -> list[str | int]:
    if isinstance(node, dict):
        return list(node)
    return list(range(len(node))) if isinstance(node, list) else []


def _walk(draw: st.DrawFn, document: Any) -> Path:
    """Walk down from the root: a part is as likely as its siblings, however large they are."""
    path: Path = ()
    node = document
    while children := _children(node):
        if path and draw(st.integers(0, 4)) == 0:
            break
        step = draw(st.sampled_from(children))
        path, node = (*path, step), node[step]
    return path


def _at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def _deleted(parent: Any, step: str | int) -> Any:
    if isinstance(parent, dict):
        return {k: v for k, v in parent.items() if k != step}
    return [v for i, v in enumerate(parent) if i != step]


def _renamed(parent: Any, step: str | int, name: str) -> Any:
    return {name if k == step else k: v for k, v in parent.items()}


def _doubled(parent: Any, step: str | int, value: Any) -> Any:
    if isinstance(parent, dict):
        return {**parent, f"{step}{_TWICE}": value}
    return [*parent, value]


_ACTS = ("alike",) * 6 + ("replace", "replace", "delete", "rename", "double", "swap", "wrap")
"""What keeps the type gets past a reader's types, to what it makes of values."""


@dataclass(frozen=True)
class Seed:
    """A real file: its name, its bytes, and what is parsed of them."""

    name: str
    data: bytes
    document: Any = None

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Mutant:
    """What came of a file, and how: a failure tells the edits and not the file."""

    seed: Seed
    edits: tuple[str, ...]
    content: Any
    """A document, or bytes."""

    def __repr__(self) -> str:
        return f"{self.seed}: {'; '.join(self.edits)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 90 else f"{text[:60]}... ({len(text)} characters)"


@st.composite
def _edited(draw: st.DrawFn, document: Any, values: Sequence[Any]) -> tuple[Any, str]:
    """Return a document with one part altered, and what was done to it."""
    path = _walk(draw, document)
    value = draw(st.sampled_from(values))
    where = "".join(f"[{step!r}]" for step in path)
    if not path:
        return value, f"all is {_short(value)}"
    parent, step = path[:-1], path[-1]
    here = _at(document, path)
    match draw(st.sampled_from(_ACTS)):
        case "alike" if alike := [each for each in _VALUES if type(each) is type(here)]:
            value = draw(st.sampled_from(alike))
        case "rename" if isinstance(step, str):
            names = ("", "x", step.upper(), step + "s", "\x1b[2J", "x" * 3000, MARKUP)
            name = draw(st.sampled_from(names))
            renamed = _replaced(document, parent, lambda node: _renamed(node, step, name))
            return renamed, f"{where} is called {_short(name)}"
        case "delete":
            deleted = _replaced(document, parent, lambda node: _deleted(node, step))
            return deleted, f"{where} is deleted"
        case "double":
            value = draw(st.sampled_from((value, here)))
            doubled = _replaced(document, parent, lambda node: _doubled(node, step, value))
            return doubled, f"{where} stands twice, as {_short(value)}"
        case "swap":
            other = _walk(draw, document)
            value = _at(document, other)
        case "wrap":
            value = [here]
    return _replaced(document, path, lambda _: value), f"{where} = {_short(value)}"


@st.composite
def altered(draw: st.DrawFn, seeds: Sequence[Seed], tokens: Sequence[Token]) -> Mutant:
    """Return a seed's document with one to three parts altered; `tokens` are among the values."""
    seed = draw(st.sampled_from(seeds))
    document, edits = seed.document, []
    for _ in range(draw(st.integers(1, 3))):
        document, edit = draw(_edited(document, (*_VALUES, *tokens)))
        edits.append(edit)
    return Mutant(seed, tuple(edits), document)


def _with_tokens(document: Any, found: list[bytes]) -> Any:
    """Return a document with marks in the place of tokens, which are gathered in `found`."""
    if isinstance(document, Token):
        found.append(document.text)
        return f"{_MARK}{len(found) - 1}{_MARK}"
    if isinstance(document, dict):
        return {k: _with_tokens(v, found) for k, v in document.items()}
    return [_with_tokens(v, found) for v in document] if isinstance(document, list) else document


def _finished(text: str, tokens: list[bytes]) -> bytes:
    data = text.replace(_TWICE, "").encode("utf-8", "surrogatepass")
    for i, token in enumerate(tokens):
        data = data.replace(f'"{_MARK}{i}{_MARK}"'.encode(), token)
    return data


def as_json(document: Any) -> bytes:
    """Write a document as JSON, whatever is in it."""
    tokens: list[bytes] = []
    marked = _with_tokens(document, tokens)
    return _finished(json.dumps(marked, ensure_ascii=False), tokens)


def as_toml(document: Any) -> bytes:
    """Write a document as TOML, whatever is in it; TOML has no null: it stays away."""
    tokens: list[bytes] = []

    def without_null(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: without_null(v) for k, v in node.items() if v is not None}
        return [without_null(v) for v in node if v is not None] if isinstance(node, list) else node

    marked = without_null(_with_tokens(document, tokens))
    if not isinstance(marked, dict):
        marked = {"x": marked}
    return _finished(tomli_w.dumps(marked), tokens)


_PIECES = (
    b"", b"\x00", b"\xff", b"\x1b[2J", b"\n", b"\r\n", b" ",
    b'"', b"'", b"{", b"}", b"[", b"]", b",",
    b":",
    b"=", b"#", b"-", b"9" * 400, b"\xef\xbb\xbf", b"\xed\xa0\x80", b"null", b"e9", b"\\",
    b"PK\x05\x06",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[Seed]) -> Mutant:
    """Return a seed's bytes with one to four damages; two files may be put together."""
    seed = draw(st.sampled_from(seeds))
    data, edits = seed.data, []
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from((1, 2, 4, 40, 1000))))
        match draw(st.sampled_from(("cut", "flip", "put", "take", "copy", "splice"))):
            case "flip" if at < len(data):
                bit = draw(st.integers(0, 7))
                edit = f"bit {bit} of byte {at} is turned"
                data = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            case "put":
                piece = draw(st.sampled_from(_PIECES))
                edit = f"{_short(piece)} is put at byte {at}"
                data = data[:at] + piece + data[at:]
            case "take":
                edit = f"bytes {at} to {end} are taken away"
                data = data[:at] + data[end:]
            case "copy":
                edit = f"bytes {at} to {end} stand twice"
                data = data[:end] + data[at:]
            case "splice":
                other = draw(st.sampled_from(seeds))
                begins = draw(st.integers(0, len(other.data)))
                edit = f"at byte {at} goes on {other} from its byte {begins}"
                data = data[:at] + other.data[begins:]
            case _:
                edit = f"it is cut at byte {at}"
                data = data[:at]
        edits.append(edit)
    return Mutant(seed, tuple(edits), data)
