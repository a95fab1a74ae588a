"""The variables of a shell script, by the shell's grammar (tree-sitter-bash); nothing is executed.

A variable is followed through the file: its value is known, or unknown with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tuner.deploy.commands import Commands
from tuner.deploy.launched import (
    ASSIGNMENT,
    LONGEST_VALUE,
    Assignment,
    Gap,
    Launched,
    LaunchFile,
    Value,
    joined,
    read_beside,
    settings_in,
)
from tuner.host.environment import is_tuning_variable

_PARSER = Parser(Language(tree_sitter_bash.language()))
_BRANCHES = ("if_statement", "case_statement", "for_statement", "c_style_for_statement",
             "while_statement", "function_definition", "ERROR")  # fmt: skip
_SIMPLE = ("declaration_command", "unset_command", "variable_assignment", "command")
"""Statements that hold no others."""
_DEEPEST = 8
"""Files and texts that a script reads within one another."""
_MOST_PIECES = 200
"""Parts of a value, known and unknown, that are followed."""
_PLACERS = re.compile(r"\b(?:taskset|numactl)\b")
_SHORT = 60
"""Characters shown of a command whose output is a value."""


class _Piece(NamedTuple):
    """A part of a word: its text, and whether it is known."""

    text: str
    gap: Gap | None = None
    unless: str = ""
    is_split: bool = False
    """Whether blanks in it part words: it comes from a variable that is not quoted."""


def _value(pieces: Iterable[_Piece], name: str = "") -> Value:
    """Return pieces as one value; name: of the variable that has it."""
    return joined((Value(each.text, each.gap, each.unless) for each in pieces), name)


class Shell:
    """A shell's variables while its commands are read, one after the other."""

    def __init__(self, file: LaunchFile, launched: Launched, folder: Path) -> None:
        self._file = file
        self._launched = launched
        self._folder = folder
        self.variables: dict[str, list[_Piece]] = {}
        self.exported: set[str] = set()
        self.is_script = True
        """Whether a shell reads the file, which exports only what the file says."""
        self.has_exports = False
        """Whether the file says what is exported."""
        self._exports_all = False
        self._is_certain = True
        self._reads: set[str] = set()
        """Variables whose value the script uses."""
        self._expanded: set[str] = set()
        self._assigned: set[str] = set()
        self._above = 0
        self._name = ""
        self._reading: list[str] = []
        """The texts that are being read, each within the one before it."""
        self._commands = Commands(file, launched, folder, self.run_inside)

    # ------------------------------------------------------------------ what is read

    def run(self, text: str, above: int = 0, name: str = "") -> None:
        """Read commands that begin `above` lines below the file's first; of another file: name."""
        if len(self._reading) >= _DEEPEST:
            self._launched.note(above + 1, name or text.strip(), Gap.TEXT, self._name)
            return
        outer = self._above, self._name
        self._reading.append(text)
        self._above, self._name = above, name or self._name
        try:
            self._statement(_PARSER.parse(text.encode()).root_node)
        except RecursionError:
            self._launched.note(above + 1, "too many blocks within one another", Gap.SYNTAX)
        finally:
            self._above, self._name = outer
            self._reading.pop()

    def end(self) -> None:
        """Mark variables that no program sees; drop those that the script uses itself."""
        kept = []
        for each in self._launched.assignments:
            is_seen = not self.is_script or each.is_exported or each.name in self.exported
            if is_seen or each.name not in self._reads:  # else it is the script's own variable
                kept.append(msgspec.structs.replace(each, is_exported=is_seen))
        self._launched.assignments = kept

    def define(self, name: str, value: Value, line: int = 0) -> None:
        """Set a variable; line: where it is set if programs see it."""
        self._set(name, [_Piece(*value)])
        if line:
            self._launched.take(
                Assignment(name, value.text, line, gap=value.gap, unless=value.unless)
            )

    def interpolated(self, text: str) -> Value:
        """Return a text with the variables in it replaced, as in double quotes."""
        escaped = re.sub(r'(["\\`]|\$\()', r"\\\1", text)
        root = _PARSER.parse(f'x="{escaped}"'.encode()).root_node
        node = next(iter(root.named_children), None)
        value = node.child_by_field_name("value") if node is not None else None
        if root.has_error or value is None:
            return Value(text, Gap.SYNTAX if "$" in text else None)
        return _value(self._pieces(value))

    # ------------------------------------------------------------------ statements

    def _line(self, node: Node) -> int:
        return self._above + node.start_point.row + 1

    def _statement(self, node: Node) -> None:
        if node.type in _BRANCHES:
            self._branch(node)
        elif node.has_error and node.type in _SIMPLE:
            self._note_broken(node)
        elif node.type == "list":
            self._list(node)
        elif node.type == "declaration_command":
            self._declare(node)
        elif node.type == "unset_command":
            self._unset([_text(child) for child in node.named_children])
        elif node.type == "variable_assignment":
            self._assign(node, is_exported=self._exports_all)
        elif node.type == "command":
            self._command(node, writes=False)
        elif node.type == "redirected_statement":
            self._redirected(node)
        elif node.type == "pipeline":
            for i, child in enumerate(node.named_children):
                if child.type == "command":
                    self._command(child, writes=i < node.named_child_count - 1)
                else:
                    self._statement(child)
        else:
            for child in node.named_children:
                self._statement(child)

    def _branch(self, node: Node) -> None:
        """Read code that runs once, often or never: its assignments are not certain afterwards."""
        if node.type == "ERROR":
            words = (child for child in node.children if _text(child).isalpha())
            keyword = next((child for child in words if not child.is_named), node)
            shown = _text(keyword) if keyword is not node else "syntax"  # never a text: a secret
            self._launched.note(self._line(keyword), shown, Gap.SYNTAX, self._name)
        was_certain, outer = self._is_certain, self._assigned
        self._is_certain, self._assigned = False, set()
        variable = node.child_by_field_name("variable")
        if node.type == "for_statement" and variable is not None:
            self._set(_text(variable), [_Piece(f"${_text(variable)}", Gap.BRANCH)])
        for child in node.named_children:
            self._statement(child)
        for name in self._assigned:
            self.variables[name] = [_Piece(f"${name}", Gap.BRANCH)]
        self._is_certain, self._assigned = was_certain, outer | self._assigned

    def _list(self, node: Node) -> None:
        """Read `a && b`: what follows a test runs only if it holds."""
        first, *others = node.named_children
        self._statement(first)
        was_certain = self._is_certain
        is_test = first.type == "test_command" or _text(first).split()[:1] == ["test"]
        self._is_certain = was_certain and not is_test
        for child in others:
            self._statement(child)
        self._is_certain = was_certain

    def _redirected(self, node: Node) -> None:
        has_file = any(child.type in ("file_redirect", "heredoc_redirect")
                       for child in node.named_children)  # fmt: skip
        for child in node.named_children:
            if child.type == "command":
                self._command(child, writes=has_file)
            elif child.type == "heredoc_redirect":
                self._here_document(child)
            elif not child.type.endswith("_redirect"):
                self._statement(child)

    def _here_document(self, node: Node) -> None:
        """List the settings in a here-document: who reads them is not known."""
        if any(child.is_missing for child in node.children):  # it has no end
            for child in node.named_children:
                if child.type == "heredoc_body":
                    self.run(_text(child), self._line(child) - 1)
            return
        for child in node.named_children:
            if child.type == "heredoc_body":
                self._note_text(_text(child), self._line(child))
            elif child.type in ("command", "pipeline", "list"):
                self._statement(child)

    def _note_text(self, text: str, first: int) -> None:
        for i, line in enumerate(text.splitlines()):
            for name in (*settings_in(line), *_PLACERS.findall(line)):
                self._launched.note(first + i, name, Gap.TEXT, self._name)

    def _note_broken(self, node: Node) -> None:
        """List the names in a statement with broken grammar: a quote without its end."""
        for i, line in enumerate(_text(node).splitlines()):
            for name in settings_in(line):
                self._launched.note(self._line(node) + i, name, Gap.SYNTAX, self._name)

    def _declare(self, node: Node) -> None:
        """Read export, declare, local, readonly."""
        words = [child for child in node.named_children if child.type != "variable_assignment"]
        options = [_text(child) for child in words if _text(child).startswith(("-", "+"))]
        is_export = _text(node.children[0]) == "export" or any("x" in each for each in options)
        is_taken_back = any("n" in each for each in options)
        before = ""
        for child in node.named_children:
            if child.type == "variable_assignment":
                has_value = child.child_by_field_name("value") is not None
                self._assign(child, is_exported=is_export or self._exports_all)
                before = "" if has_value else _text(child).rstrip("+=")
            elif child.type == "variable_name":
                before = _text(child)
                self._export(before, is_exported=is_export and not is_taken_back)
            elif _text(child) not in options:
                for word in self._words(child):
                    self._declared(word, self._line(child), before, is_export=is_export)

    def _export(self, name: str, *, is_exported: bool) -> None:
        self.has_exports |= is_exported
        (self.exported.add if is_exported else self.exported.discard)(name)

    def _declared(self, word: Value, line: int, before: str, *, is_export: bool) -> None:
        """Take a word of a declaration that the grammar does not see as an assignment."""
        if match := ASSIGNMENT.fullmatch(word.text):
            self._take(match[1], [_Piece(match[2], word.gap, word.unless)], line,
                       is_exported=is_export)  # fmt: skip
        elif word.gap is not None:
            self._launched.note(line, word.text, Gap.WORDS, self._name)
        elif re.fullmatch(r"[A-Za-z_]\w*", word.text):
            self._export(word.text, is_exported=is_export)
        elif is_tuning_variable(before):
            self._launched.note(line, before, Gap.BLANKS, self._name)

    def _unset(self, names: Sequence[str]) -> None:
        for name in names:
            self.variables[name] = []
            self.exported.discard(name)
        if self._is_certain:
            kept = [each for each in self._launched.assignments if each.name not in names]
            self._launched.assignments = kept

    def _assign(self, node: Node, *, is_exported: bool, command: int = 0) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":  # an element of an array
            return
        self._expanded = set()
        pieces = [] if value is None else self._pieces(value)
        extends = _text(name) in self._expanded
        if _operator(node) == "+=":
            extends, pieces = True, [*self._value_of(_text(name), f"${{{_text(name)}}}"), *pieces]
        self._take(_text(name), pieces, self._line(node), is_exported=is_exported,
                   command=command, extends=extends)  # fmt: skip

    def _take(
        self,
        name: str,
        pieces: list[_Piece],
        line: int,
        *,
        is_exported: bool,
        command: int = 0,
        extends: bool = False,
    ) -> None:
        value = _value(pieces, name)
        if not command:
            self._set(name, pieces)
            if is_exported:
                self._export(name, is_exported=True)
        self._launched.take(
            Assignment(name, value.text, line, command, self._is_certain, is_exported,
                       value.gap, value.unless, extends, self._name)
        )  # fmt: skip

    def _set(self, name: str, pieces: list[_Piece]) -> None:
        size = sum(len(each.text) for each in pieces)
        is_long = size > LONGEST_VALUE or len(pieces) > _MOST_PIECES
        is_unknown = len(pieces) == 1 and pieces[0].gap is not None
        if is_long or is_unknown:
            gap = Gap.COMPUTED if is_long else pieces[0].gap
            self.variables[name] = [_Piece(f"${name}", gap)]
        else:
            self.variables[name] = pieces
        self._assigned.add(name)

    def _command(self, node: Node, *, writes: bool) -> None:
        """Read a command; writes: into a file or a pipe."""
        names = [child for child in node.named_children
                 if child.type not in ("variable_assignment", "file_redirect")]  # fmt: skip
        first = _text(names[0]) if names else ""
        if first in ("echo", "printf"):
            if writes:
                self._note_text(_text(node), self._line(node))
            return
        own = [child for child in node.named_children if child.type == "variable_assignment"]
        self._commands.begin(self._is_certain, self._name)
        for child in own:
            self._assign(child, is_exported=True, command=self._commands.number)
        words = [word for child in names for word in self._words(child)]
        line = self._line(node)
        if first == "set":
            self._set_options([word.text for word in words[1:]])
        elif first in ("source", ".") and len(words) > 1:
            self._source(words[1], line)
        elif first == "eval":
            gap = next((word.gap for word in words[1:] if word.gap), None)
            self.run_inside(Value(" ".join(word.text for word in words[1:]), gap), line)
        elif len(words) > 1 and words[1].text.startswith("=") and is_tuning_variable(first):
            self._launched.note(line, first, Gap.BLANKS, self._name)
        elif own and not writes and _is_blank_before(own[-1], first):
            self._launched.note(line, _text(own[-1]).rstrip("="), Gap.BLANKS, self._name)
        else:
            self._commands.read(words, line)

    def _source(self, path: Value, line: int) -> None:
        """Read another script, if it is next to this one and is not being read."""
        text = read_beside(self._folder, path.text) if path.gap is None else None
        if text is None:
            self._launched.note(line, path.text, Gap.ELSEWHERE, self._name)
        elif text not in self._reading:
            self.run(text, 0, Path(path.text).name)

    def _set_options(self, options: Sequence[str]) -> None:
        """Note whether `set` has the shell export whatever it sets from here on."""
        before = ""
        for option in options:
            if option == "--":
                return
            if option == "allexport" or re.fullmatch(r"[-+][a-z]*a[a-z]*", option):
                self._exports_all = (before if option == "allexport" else option)[:1] == "-"
                self.has_exports |= self._exports_all
            before = option

    def run_inside(self, code: Value, line: int) -> None:
        """Read a text that a shell runs: eval, sh -c."""
        if code.gap is None:
            self.run(code.text, line - 1)
        else:
            self._launched.note(line, code.text, Gap.WORDS, self._name)

    # ------------------------------------------------------------------ values

    def _words(self, node: Node) -> Iterator[Value]:
        """Yield the words that an argument becomes: a variable without quotes may be several."""
        if node.type == "command_name":
            for child in node.named_children:
                yield from self._words(child)
            return
        word: list[_Piece] = []
        for piece in self._pieces(node):
            if not piece.is_split or piece.gap is not None:
                word.append(piece)
                continue
            parts = re.split(r"(\s+)", piece.text)
            for part in parts:
                if part.isspace():
                    if word:
                        yield _value(word)
                    word = []
                elif part:
                    word.append(piece._replace(text=part))
        if word or node.type in ("string", "raw_string"):
            yield _value(word)

    def _pieces(self, node: Node) -> list[_Piece]:
        """Return the parts of a word."""
        kind, text = node.type, _text(node)
        if kind == "raw_string":
            return [_Piece(text[1:-1])]
        if kind in ("word", "number", "variable_name", "test_operator"):
            return [_Piece(re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))]
        if kind in ("string", "concatenation", "translated_string"):
            return self._parts(node, is_quoted=kind != "concatenation")
        if kind == "simple_expansion":
            name = text[1:]
            return self._value_of(name, text)
        if kind == "expansion":
            return self._expansion(node)
        shown = text if len(text) <= _SHORT else f"{text[:_SHORT]}..."
        return [_Piece(shown, Gap.COMPUTED, is_split=True)]

    def _parts(self, node: Node, *, is_quoted: bool) -> list[_Piece]:
        """Return the text in quotes, or of adjacent quotes; the grammar leaves blanks out."""
        found: list[_Piece] = []
        data, at = node.text or b"", 1 if is_quoted else 0
        for child in node.named_children:
            begin, end = child.start_byte - node.start_byte, child.end_byte - node.start_byte
            found.append(_Piece(data[at:begin].decode(errors="replace")))
            if child.type == "string_content":
                found.append(_Piece(re.sub(r'\\(["\\$`])', r"\1", _text(child))))
            else:
                found += self._pieces(child)
            at = end
        found.append(
            _Piece(data[at : len(data) - (1 if is_quoted else 0)].decode(errors="replace"))
        )
        kept = [each for each in found if each.text or each.gap]
        return [each._replace(is_split=False) for each in kept] if is_quoted else kept

    def _value_of(self, name: str, written: str) -> list[_Piece]:
        """Return a variable's value; what went before in LD_PRELOAD is no part of the file."""
        self._expanded.add(name)
        self._reads.add(name)
        if name in self.variables:
            return [each._replace(is_split=True) for each in self.variables[name]]
        if name == "LD_PRELOAD":
            return []
        return [_Piece(written, Gap.NOT_SET_HERE, is_split=True)]

    def _expansion(self, node: Node) -> list[_Piece]:
        """Return the value of ${NAME}, with its substitutes: ${NAME:-16}, ${NAME:+x}."""
        text = _text(node)
        match = re.fullmatch(r"\$\{(\w+)(?:(:?[-=+?])(.*))?\}", text, re.DOTALL)
        if match is None:
            return [_Piece(text, Gap.COMPUTED, is_split=True)]
        name, operator = match[1], (match[2] or "")[-1:]
        value = self._value_of(name, text)
        is_set = name in self.variables and any(each.text for each in value)
        if operator in ("", "?"):
            return value
        other = [piece for child in node.named_children[1:] for piece in self._pieces(child)]
        if operator == "+":
            return other if is_set else [each for each in value if each.gap]
        if is_set:
            return value
        default = [each._replace(unless=each.unless or name) for each in other] or value
        if operator == "=":
            self._take(name, default, self._line(node), is_exported=self._exports_all)
        return default


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _operator(node: Node) -> str:
    return next((_text(child) for child in node.children if not child.is_named), "")


def _is_blank_before(assignment: Node, word: str) -> bool:
    """Tell whether a number was meant to be the value: NAME= 4."""
    name = _text(assignment).rstrip("=")
    return (
        assignment.child_by_field_name("value") is None
        and word[:1].isdecimal()
        and is_tuning_variable(name)
    )
