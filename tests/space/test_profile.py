from pathlib import Path

import pytest

from tuner.errors import ProfileError, UnknownName
from tuner.galleries import SEARCH_SPACES
from tuner.space.profile_file import gallery, load_profile

GOOD = """schema_version = 1
title = "mine"
extends = "auto"

[[knob]]
id = "env.MY_THREADS"
values = [1, "=between(2, 3)", { value = 9, when = "host.smt", why = "no SMT" }]

[[baseline]]
name = "mine"
source = "me"
frameworks = ["torch"]
settings = { "env.MY_THREADS" = "=host.physical_cores" }
"""


def load(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    load_profile(str(path), SEARCH_SPACES)


@pytest.mark.parametrize("name", gallery(SEARCH_SPACES))
def test_every_shipped_profile_loads(name: str) -> None:
    profile = load_profile(name, SEARCH_SPACES)
    assert profile.name == name
    assert profile.knob
    assert all(baseline.source for baseline in profile.baseline)


def test_the_profiles_of_the_contract_are_there() -> None:
    assert {"xeon", "epyc", "arm", "cuda", "auto"} <= gallery(SEARCH_SPACES).keys()


def test_a_users_file_extends_a_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    mine, base = load_profile(str(path), SEARCH_SPACES), load_profile("auto", SEARCH_SPACES)
    assert [k.id for k in mine.knob] == [*(k.id for k in base.knob), "env.MY_THREADS"]
    assert mine.baseline[-1].name == "mine"


def test_an_entry_of_the_same_id_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace("env.MY_THREADS", "env.KMP_TPAUSE"))
    mine = load_profile(str(path), SEARCH_SPACES)
    assert [len(k.values) for k in mine.knob if k.id == "env.KMP_TPAUSE"] == [3]


@pytest.mark.parametrize(
    ("old", "new", "line", "fault", "allowed"),
    [
        ("title", "titel", 1, "unknown field 'titel'", "needed are schema_version, title"),
        ('title = "mine"', 'title = "mine', 2, "not TOML", "toml.io"),
        ("schema_version = 1", "schema_version = 7", 1, "schema version 7", "version 1"),
        ('id = "env.MY_THREADS"', 'id = "jobs"', 6, "no knob 'jobs'", "allowed are env.NAME"),
        ("values = [1,", "valuse = [1,", 5, "unknown field 'valuse'", "values"),
        ("between(2, 3)", "betwixt(2, 3)", 7, "no function 'betwixt'", "expressions"),
        ("host.smt", "host.smt +", 7, "not a formula", "expressions"),
        ("host.smt", "host.sms", 7, "'host.sms', which is no fact", "did you mean host.smt?"),
        ('["torch"]', '["caffe"]', 12, "no framework 'caffe'", "torch, tensorflow"),
        ('"env.MY_THREADS" = "=', '"cores" = "=', 13, "no knob 'cores'", "allowed are"),
        ("env.MY_THREADS", "env.A;touch x;B", 6, "no knob 'env.A;touch x;B'", "allowed are"),
        ("env.MY_THREADS", "env.OMP_NUM_THREDS", 6, "no knob", "did you mean env.OMP_NUM_THREADS?"),
        ("[1,", '["a\\u001b",', 7, "holds control characters", "no setting has these"),
        ('"=between(2, 3)"', "1e999", 7, "env.MY_THREADS=inf is not a finite number", ""),
        ('"=between(2, 3)"', str(10**20), 7, "is a number of more than 64 bits", ""),
        (
            'MY_THREADS"\nvalues = [1',
            'OMP_NUM_THREADS"\nvalues = ["banana"',
            7,
            "env.OMP_NUM_THREADS cannot be 'banana'",
            "allowed are: a whole number from 1",
        ),
        (
            'id = "env.MY_THREADS"\nvalues = [1',
            'id = "launch.instances"\nvalues = ["lots"',
            7,
            "launch.instances cannot be 'lots'",
            "allowed are: a whole number from 1",
        ),
        (
            "value = 9,",
            'value = "a\\u0007",',
            7,
            "holds control characters",
            "no setting has these",
        ),
        (
            '"env.MY_THREADS" = "=host.physical_cores"',
            '"torch.compile.mode" = 1',
            13,
            "torch.compile.mode cannot be 1",
            "allowed are: off, default, freezing",
        ),
        ('source = "me"', "source = 3", 11, "Expected 'str'", "needed are name, source"),
        ('extends = "auto"', 'extends = "ghost"', 3, "cannot extend 'ghost'", "name one of"),
        ('name = "mine"', 'name = "default"', 10, "'default' is taken", "another name"),
    ],
)
def test_a_fault_has_file_line_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, line: int, fault: str, allowed: str
) -> None:
    with pytest.raises(ProfileError) as error:
        load(tmp_path, GOOD.replace(old, new, 1))
    message = str(error.value)
    assert message.startswith(f"{tmp_path}/mine.toml:{line}: ")
    assert fault in message
    assert allowed in message


def test_a_condition_may_not_ask_a_knob_below_it(tmp_path: Path) -> None:
    text = GOOD.replace('id = "env.MY_THREADS"', 'id = "env.MY_THREADS"\nwhen = "env.LATER == 1"')
    text += '\n[[knob]]\nid = "env.LATER"\nvalues = [1]\n'
    with pytest.raises(ProfileError, match=r"mine.toml:7: .*asks env.LATER.*move it below"):
        load(tmp_path, text)


def test_an_unknown_profile_has_close_matches() -> None:
    with pytest.raises(UnknownName, match="did you mean xeon"):
        load_profile("xeno", SEARCH_SPACES)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('id = "launch.allocator"\nvalues = ["tcmaloc"]', "cannot be 'tcmaloc'"),
        (
            'id = "launch.openmp"\nvalues = [{ value = "libomp", when = "true", why = "", '
            'substitute = "libiomp" }]',
            "substitute 'libiomp' is no value of launch.openmp",
        ),
    ],
)
def test_a_library_that_nothing_finds_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ProfileError, match=fault):
        load(tmp_path, f'schema_version = 1\ntitle = "mine"\n[[knob]]\n{text}\n')


def test_another_name_may_ask_for_the_host_alone(tmp_path: Path) -> None:
    knobs = '[[knob]]\nid = "env.A"\nvalues = [1]\n[[knob]]\nid = "env.B"\nvalues = []\n'
    more = 'alias_of = "env.A"\nwhen = "env.A == 1"\n'
    with pytest.raises(ProfileError, match="and asks a knob"):
        load(tmp_path, f'schema_version = 1\ntitle = "mine"\n{knobs}{more}')


def test_the_example_of_the_documentation_loads(tmp_path: Path) -> None:
    text = (SEARCH_SPACES / "README.md").read_text()
    load(tmp_path, text.partition("```toml\n")[2].partition("```")[0])
