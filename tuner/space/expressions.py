"""The formulas of search spaces: a small language over named facts, read and run without eval.

    host.physical_cores // 2
    'avx512_bf16' in host.isa and torch.compile.mode != 'off'
    min(host.physical_cores, 8) if host.smt else host.logical_cpus
    divisors(host.physical_cores)

Names are dotted. Values are numbers, strings, true, false and lists. Nothing else of Python is
there: no attribute, call or loop can reach outside the facts, and sizes are bounded.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tuner.errors import ExpressionError
from tuner.record.configuration import Value

ExpressionValue: TypeAlias = Value | tuple[Value, ...]
Facts: TypeAlias = Mapping[str, Any]
_Compute: TypeAlias = Callable[[Facts], Any]

_CONSTANTS = {"true": True, "false": False}  # as TOML writes them
_MAX_LENGTH = 500
_MAX_LIST = 4096
_MAX_NUMBER = 1e18


def _powers_of_two(limit: int) -> tuple[int, ...]:
    return tuple(1 << k for k in range(max(0, int(limit)).bit_length()))


def _divisors(number: int) -> tuple[int, ...]:
    if number > _MAX_LIST:
        raise ValueError(f"divisors of {number}: at most {_MAX_LIST}")
    return tuple(d for d in range(1, int(number) + 1) if number % d == 0)


def _between(first: int, last: int) -> tuple[int, ...]:
    if last - first >= _MAX_LIST:
        raise ValueError(f"more than {_MAX_LIST} values")
    return tuple(range(int(first), int(last) + 1))


def _sorted_unique(*values: Any) -> tuple[Any, ...]:
    flat: list[Any] = []
    for value in values:
        flat.extend(value if isinstance(value, tuple) else (value,))
    return tuple(sorted(set(flat)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "len": len,
    "between": _between,
    "divisors": _divisors,
    "powers_of_two": _powers_of_two,
    "values": _sorted_unique,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else None
    return None


class Expression:
    """A formula, checked when it is read; `names` are the facts that it asks for.

    Raises ExpressionError, with the column, for anything outside the language.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _MAX_LENGTH:
            raise ExpressionError(text[:40] + "...", 0, f"longer than {_MAX_LENGTH} characters")
        try:
            self._root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            column = (getattr(error, "offset", 1) or 1) - 1
            raise ExpressionError(text, column, "not a formula") from error
        self.names: set[str] = set()
        self._check(self._root)
        self._compute = self._compiled(self._root)

    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        """Pickle as text: compiled code cannot be sent to another process."""
        return Expression, (self.text,)

    def _refuse(self, node: ast.AST, fault: str) -> ExpressionError:
        return ExpressionError(self.text, getattr(node, "col_offset", 0), fault)

    def _check(self, node: ast.expr) -> None:
        name = _dotted(node)
        if name is not None:
            self.names |= {name} - _CONSTANTS.keys()
            return
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool):
                return
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                below = parts
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                below = [left, right]
            case ast.UnaryOp(op=unary, operand=operand) if type(unary) in _UNARY:
                below = [operand]
            case ast.BoolOp(values=parts):
                below = parts
            case ast.Compare(left=left, ops=ops, comparators=parts):
                if any(type(op) not in _COMPARE for op in ops):
                    raise self._refuse(node, "compare with == != < <= > >= in, not in")
                below = [left, *parts]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                below = [test, body, orelse]
            case ast.Call(func=ast.Name(id=function), args=parts, keywords=[]):
                if function not in FUNCTIONS:
                    allowed = ", ".join(sorted(FUNCTIONS))
                    raise self._refuse(node, f"no function {function!r}; there are {allowed}")
                below = parts
            case _:
                raise self._refuse(node, "not part of the formula language")
        for part in below:
            self._check(part)

    def evaluate(self, facts: Facts) -> ExpressionValue:
        """Return the value over the facts; lists come as tuples.

        Raises ExpressionError for an unknown name and for what cannot be computed (1/0, 'a' < 1).
        """
        return self._compute(facts)  # type: ignore[no-any-return]

    def holds(self, facts: Facts) -> bool:
        """Return whether the value counts as true."""
        return bool(self.evaluate(facts))

    def _compiled(self, node: ast.expr) -> _Compute:
        """Turn a checked node into a function of the facts, because it is evaluated often."""
        name = _dotted(node)
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda facts: constant
        if name is not None:
            return lambda facts: self._fact(node, name, facts)
        compute = self._operation(node)
        if isinstance(node, ast.Compare | ast.BoolOp | ast.Constant):
            return self._guarded(node, compute)  # what they return has no size to speak of
        return self._bounded(node, self._guarded(node, compute))

    def _fact(self, node: ast.expr, name: str, facts: Facts) -> Any:
        try:
            return facts[name]
        except KeyError:
            known = ", ".join(sorted(facts))
            raise self._refuse(node, f"no fact {name!r}; there are {known}") from None

    def _guarded(self, node: ast.expr, compute: _Compute) -> _Compute:
        def guarded(facts: Facts) -> Any:
            try:
                return compute(facts)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise self._refuse(node, str(error)) from error

        return guarded

    def _bounded(self, node: ast.expr, compute: _Compute) -> _Compute:
        def bounded(facts: Facts) -> Any:
            value = compute(facts)
            is_number = isinstance(value, int | float)
            if abs(value) > _MAX_NUMBER if is_number else len(value) > _MAX_LIST:
                raise self._refuse(node, "the value is too large")
            return value

        return bounded

    def _operation(self, node: ast.expr) -> _Compute:
        match node:
            case ast.Constant(value=constant):
                return lambda facts: constant
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                parts = [self._compiled(part) for part in elts]
                return lambda facts: tuple([part(facts) for part in parts])
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(type(op), self._compiled(left), self._compiled(right))
            case ast.UnaryOp(op=unary, operand=operand):
                change, of = _UNARY[type(unary)], self._compiled(operand)
                return lambda facts: change(of(facts))
            case ast.BoolOp(op=ast.And(), values=values):
                parts = [self._compiled(part) for part in values]
                return lambda facts: all(part(facts) for part in parts)
            case ast.BoolOp(values=values):
                parts = [self._compiled(part) for part in values]
                return lambda facts: any(part(facts) for part in parts)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return _comparison(
                    [_COMPARE[type(op)] for op in ops],
                    [self._compiled(part) for part in (left, *comparators)],
                )
            case ast.IfExp(test=test, body=body, orelse=orelse):
                holds, one, other = map(self._compiled, (test, body, orelse))
                return lambda facts: one(facts) if holds(facts) else other(facts)
            case ast.Call(func=ast.Name(id=function), args=arguments):
                call, given = FUNCTIONS[function], [self._compiled(part) for part in arguments]
                return lambda facts: call(*[part(facts) for part in given])
        raise TypeError("not part of the formula language")


def _binary(kind: type[ast.operator], left: _Compute, right: _Compute) -> _Compute:
    compute, is_product = _BINARY[kind], kind is ast.Mult

    def combined(facts: Facts) -> Any:
        a, b = left(facts), right(facts)
        if is_product and not (isinstance(a, int | float) and isinstance(b, int | float)):
            raise TypeError("only numbers can be multiplied")
        return compute(a, b)

    return combined


def _comparison(compare: list[Callable[[Any, Any], bool]], parts: list[_Compute]) -> _Compute:
    if len(compare) == 1:
        (one,), (left, right) = compare, parts
        return lambda facts: one(left(facts), right(facts))

    def chained(facts: Facts) -> bool:
        values = [part(facts) for part in parts]
        pairs = zip(compare, values, values[1:], strict=False)
        return all(holds(a, b) for holds, a, b in pairs)

    return chained
