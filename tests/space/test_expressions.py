import pickle

import pytest

from tuner.errors import ExpressionError
from tuner.space.expressions import Expression

FACTS = {
    "host.physical_cores": 12,
    "host.isa": ("avx2", "avx512_bf16"),
    "host.smt": True,
    "env.OMP_NUM_THREADS": 4,
    "torch.compile.mode": "off",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("host.physical_cores // 5", 2),
        ("host.physical_cores / 8", 1.5),
        ("-3 + 2 * 4 % 3", -1),
        ("'avx512_bf16' in host.isa and torch.compile.mode == 'off'", True),
        ("'amx' not in host.isa", True),
        ("1 < host.physical_cores <= 12", True),
        ("host.physical_cores if host.smt == false else 1", 1),
        ("not host.smt or false", False),
        ("min(host.physical_cores, 8)", 8),
        ("divisors(host.physical_cores)", (1, 2, 3, 4, 6, 12)),
        ("powers_of_two(host.physical_cores)", (1, 2, 4, 8)),
        ("values(2, [1, 2], between(4, 5))", (1, 2, 4, 5)),
        ("env.OMP_NUM_THREADS * 2", 8),
        ("len(host.isa)", 2),
    ],
)
def test_formulas_have_their_values(text: str, value: object) -> None:
    assert Expression(text).evaluate(FACTS) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "host.isa[0]",
        "(lambda: 1)()",
        "[x for x in host.isa]",
        "open('/etc/passwd')",
        "f'{host.isa}'",
        "2 ** 1000",
        "host.physical_cores if",
        "",
        "a := 1",
        "min(1, key=2)",
        "'a'.join(host.isa)",
        "1 is 1",
        "x" * 501,
    ],
)
def test_anything_else_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1 // 0", "division"),
        ("'a' < 1", "not supported"),
        ("host.cores + 1", "no fact 'host.cores'"),
        ("'a' * 1000000000", "only numbers"),
        ("between(1, 10000000)", "more than"),
        ("divisors(100000000)", "at most"),
        ("1e18 * 1e18", "too large"),
    ],
)
def test_what_cannot_be_computed_names_the_fault_and_the_column(text: str, fault: str) -> None:
    with pytest.raises(ExpressionError, match=fault) as error:
        Expression(text).evaluate(FACTS)
    assert "column" in str(error.value)


def test_the_facts_that_a_formula_asks_are_known() -> None:
    assert Expression("host.smt and torch.compile.mode == 'off' and true").names == {
        "host.smt",
        "torch.compile.mode",
    }


def test_a_formula_travels_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(Expression("1 + 2 * host.physical_cores")))
    assert sent.evaluate({"host.physical_cores": 4}) == 9
