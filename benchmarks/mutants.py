"""Small faults in a Python source, one at a time: those that `benchmarks.mutations` has tests find.

A mutant turns a comparison, swaps `and` and `or`, doubles a number, negates a bool that is
returned, or removes a statement. Left alone are docstrings, annotations, imports, f-strings,
patterns, Protocols, what only type checkers or `python FILE` run, and what logs or warns. An
assignment is removed only where its name has a value already; `__init__` keeps its attributes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SAYS = {"logging", "logger", "warnings"}
_BUILDS = {"__init__", "__post_init__", "__new__"}
_NOT_RUN = {"TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"}
_REMOVED = (
    ast.Expr,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Return,
    ast.Raise,
    ast.Delete,
    ast.Assert,
    ast.Continue,
    ast.Break,
)
_MOST_SHOWN = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a source.

    node: what is replaced; code: by what. statement: the first line of the statement around it.
    names: what a statement defines that runs when its module is imported, else empty.
    """

    text: str
    node: ast.expr | ast.stmt
    code: str
    kind: str
    statement: int
    names: frozenset[str]

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def change(self) -> str:
        """Return what is changed, in one short line."""
        old = ast.get_source_segment(self.text, self.node) or ""
        return f"{_shown(old)} -> {_shown(self.code)}"

    @property
    def source(self) -> str:
        """Return the changed source."""
        lines = self.text.encode().splitlines(keepends=True)  # columns are counted in bytes
        first, last = self.node.lineno - 1, (self.node.end_lineno or self.node.lineno) - 1
        before = b"".join(lines[:first]) + lines[first][: self.node.col_offset]
        after = lines[last][self.node.end_col_offset :] + b"".join(lines[last + 1 :])
        return (before + self.code.encode() + after).decode()


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that runs, without the blocks under it.

    expressions: what it evaluates. function: the one around it, if any; owners: the classes.
    names: see Mutant.
    """

    node: ast.stmt
    expressions: tuple[ast.expr, ...]
    function: Function | None
    owners: frozenset[str]
    names: frozenset[str]


def statements(tree: ast.Module) -> Iterator[Statement]:
    """Return every statement of a module that runs."""
    nowhere = Statement(ast.Pass(), (), None, frozenset(), frozenset())
    return _statements(tree.body, nowhere)


def _statements(block: Iterable[ast.stmt], around: Statement) -> Iterator[Statement]:
    for node in block:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal | ast.Pass):
            continue
        if isinstance(node, Function):
            here = _defined(around, node, {node.name}, _at_definition(node))
            yield here
            yield from _statements(node.body, replace(here, function=node, names=frozenset()))
        elif isinstance(node, ast.ClassDef):
            if any(ast.unparse(base).split(".")[-1].startswith("Protocol") for base in node.bases):
                continue
            given = (*node.decorator_list, *(each.value for each in node.keywords))
            here = _defined(around, node, {node.name}, given)
            yield here
            yield from _statements(node.body, replace(here, owners=here.owners | {node.name}))
        elif isinstance(node, ast.If) and ast.unparse(node.test) in _NOT_RUN:
            yield from _statements(node.orelse, around)
        else:
            yield _defined(around, node, _bound(node), tuple(_evaluated(node)))
            for inner in _blocks(node):
                yield from _statements(inner, around)


def _defined(
    around: Statement, node: ast.stmt, names: set[str], expressions: tuple[ast.expr, ...]
) -> Statement:
    """Return a statement; one in a class's body defines that class."""
    defined = frozenset() if around.function else around.owners or frozenset(names)
    return replace(around, node=node, expressions=expressions, names=defined)


def _at_definition(node: Function) -> tuple[ast.expr, ...]:
    defaults = (*node.args.defaults, *(each for each in node.args.kw_defaults if each))
    return (*node.decorator_list, *defaults)


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a statement assigns, those in its blocks too."""
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def _evaluated(node: ast.stmt) -> Iterator[ast.expr]:
    for field, value in ast.iter_fields(node):
        if field == "annotation":
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.expr):
                yield each
            elif isinstance(each, ast.withitem):
                yield each.context_expr
            elif isinstance(each, ast.match_case) and each.guard:
                yield each.guard
            elif isinstance(each, ast.ExceptHandler) and each.type:
                yield each.type


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(node, field, [])
    for each in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield each.body


def nodes(expression: ast.expr) -> Iterator[ast.expr]:
    """Return an expression and those in it, without f-strings and what is logged."""
    if isinstance(expression, ast.JoinedStr) or _says(expression):
        return  # the place of what stands in an f-string is known from Python 3.12 on only
    yield expression
    for child in ast.iter_child_nodes(expression):
        if isinstance(child, ast.keyword):
            yield from nodes(child.value)
        elif isinstance(child, ast.comprehension):
            for each in (child.iter, *child.ifs):
                yield from nodes(each)
        elif isinstance(child, ast.expr):
            yield from nodes(child)


def _says(expression: ast.expr) -> bool:
    if not isinstance(expression, ast.Call):
        return False
    return ast.unparse(expression.func).split(".")[0] in _SAYS


def mutants(text: str) -> list[Mutant]:
    """Return every mutant of a source."""
    return [
        Mutant(text, node, code, kind, statement.node.lineno, statement.names)
        for statement in statements(ast.parse(text))
        for kind, node, code in _changes(statement)
    ]


def _shown(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 3]}..."


def _changes(statement: Statement) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Return the changes of one statement: their kind, what is replaced, by what code."""
    node = statement.node
    if isinstance(node, _REMOVED) and _may_go(statement):
        yield "removed", node, "pass"
    if isinstance(node, ast.Return) and node.value and _returns_bool(statement.function):
        yield "negated", node.value, f"(not ({ast.unparse(node.value)}))"
    for expression in statement.expressions:
        for each in nodes(expression):
            for kind, new in _of_expression(each):
                yield kind, each, new


def _of_expression(node: ast.expr) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                turned = [*ops[:i], _TURNED[type(op)](), *ops[i + 1 :]]
                yield "comparison", f"({ast.unparse(ast.Compare(left, turned, comparators))})"
        case ast.BoolOp(op, values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and/or", f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            yield "constant", repr(number * 2 or 1)


def _returns_bool(function: Function | None) -> bool:
    return (
        function is not None
        and function.returns is not None
        and (ast.unparse(function.returns) == "bool")
    )


def _may_go(statement: Statement) -> bool:
    """Whether a statement can be removed so that another program is left."""
    node, function = statement.node, statement.function
    match node:
        case ast.Expr(ast.Constant()):
            return False
        case ast.Expr(value):
            return not _says(value)
        case ast.Return(None | ast.Constant(None)):
            return function is not None and node is not function.body[-1]
        case ast.AnnAssign(value=None):
            return False
        case ast.Assign() | ast.AnnAssign():
            if function is None:
                return False
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if function.name in _BUILDS and any(isinstance(t, ast.Attribute) for t in targets):
                return False
            return _bound(node) <= _known_before(function, node.lineno)
    return True


def _known_before(function: Function, line: int) -> set[str]:
    """Return the names that have a value in a function above a line."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [each for each in (arguments.vararg, arguments.kwarg) if each]
    known = {each.arg for each in named}
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            known.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno < line:
            known.add(node.id)
    return known


def mentions(text: str) -> Iterator[tuple[str, int, frozenset[str]]]:
    """Return (name, line, what the line defines when it is imported, else nothing) of a source.

    A method's lines mention its class.
    """
    for statement in statements(ast.parse(text)):
        line = statement.node.lineno
        if statement.function:
            for owner in statement.owners:
                yield owner, line, frozenset()
        for each in [node for value in statement.expressions for node in ast.walk(value)]:
            match each:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, each.lineno, statement.names
