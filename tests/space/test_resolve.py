from pathlib import Path

import pytest

from tests.space.spaces import (
    FAKE_DEFAULTS,
    TENSORFLOW_DEFAULTS,
    TORCH_DEFAULTS,
    machine,
    resolved,
)
from tuner.errors import UnknownName, UsageError
from tuner.galleries import SEARCH_SPACES
from tuner.record.configuration import Configuration, Value
from tuner.record.journal import WinnerClass
from tuner.space.knobs import winner_class
from tuner.space.profile import load_profile
from tuner.space.resolve import Space, knob_ids
from tuner.space.restrictions import Restrictions, check_known, parse_restrictions


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return resolved(machine(tmp_path), "fake", FAKE_DEFAULTS, "fake")


def test_a_value_that_is_in_force_anyway_is_the_default(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    assert torch.canonical({"env.OMP_NUM_THREADS": 8}) == Configuration()
    assert torch.canonical({"env.OMP_NUM_THREADS": 4}) != Configuration()


def test_false_is_not_zero(tmp_path: Path) -> None:
    tensorflow = resolved(machine(tmp_path, cores=8), "tensorflow", TENSORFLOW_DEFAULTS)
    assert tensorflow.canonical({"tensorflow.frozen": False}) == Configuration()
    assert tensorflow.canonical({"tensorflow.frozen": True}) != Configuration()


def test_a_knob_that_another_makes_dead_does_not_count(tmp_path: Path) -> None:
    tensorflow = resolved(machine(tmp_path, cores=8), "tensorflow", TENSORFLOW_DEFAULTS)
    both: dict[str, Value] = {
        "tensorflow.jit_compile": True,
        "tensorflow.auto_mixed_precision": "bf16",
    }
    assert tensorflow.canonical(both) == Configuration.of({"tensorflow.jit_compile": True})
    assert [knob for knob, _ in tensorflow.dead(both)] == ["tensorflow.auto_mixed_precision"]


def test_dead_knobs_of_guides_are_told_with_the_reason(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    ((knob, why),) = torch.dead({"env.KMP_BLOCKTIME": 1})
    assert knob == "env.KMP_BLOCKTIME"
    assert "libgomp" in why
    ((knob, why),) = torch.dead({"torch.interop_threads": 1})
    assert "TorchScript" in why


def test_every_configuration_is_canonical_and_comes_once(space: Space) -> None:
    everything = list(space.configurations())
    assert len(everything) == len(set(everything)) == space.upper_size() == 864
    assert all(space.contains(c) and space.canonical(c.as_dict()) == c for c in everything[::7])


def test_neighbours_differ_in_one_knob_and_are_mutual(space: Space) -> None:
    here = Configuration.of({"fake.layout": "packed", "env.FAKE_THREADS": 8})
    around = space.neighbours(here)
    assert len(around) == 3 + 2 + 1 + 2 + 2 + 1 + 1
    for other in around:
        assert here in space.neighbours(other)
        assert len(set(here.settings) ^ set(other.settings)) in (1, 2)


def test_layout_is_no_knob_for_a_model_without_images(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS, kind="transformer")
    assert torch.canonical({"torch.memory_format": "channels_last"}) == Configuration()


def test_values_that_do_not_exist_here_are_dropped_with_the_reason(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8, flags="avx2")
    torch = resolved(host, "torch", TORCH_DEFAULTS)
    assert torch.by_id["torch.autocast"].choices == ("off",)
    assert torch.by_id["torch.autocast"].dropped == (
        ("bf16", "this processor has no bf16 instructions"),
    )


def test_binding_is_a_knob_only_where_there_are_nodes(tmp_path: Path) -> None:
    one = resolved(machine(tmp_path / "one", cores=8), "torch", TORCH_DEFAULTS)
    two = resolved(machine(tmp_path / "two", sockets=2, cores=4), "torch", TORCH_DEFAULTS)
    assert one.canonical({"launch.numa_node": 0}) == Configuration()
    assert two.by_id["launch.numa_node"].choices == ("none", 0, 1)


def test_classes_follow_the_knobs() -> None:
    def of(*knobs: str) -> WinnerClass:
        return winner_class(Configuration.of(dict.fromkeys(knobs, "x")))

    assert of("workload.batch", "env.ANY", "launch.allocator") is WinnerClass.LAUNCH_ONLY
    assert of("env.ANY", "torch.compile.mode") is WinnerClass.SAME
    assert of("torch.interop_threads") is WinnerClass.SAME
    assert of("torch.autocast") is WinnerClass.REDUCED
    assert of("env.DNNL_DEFAULT_FPMATH_MODE") is WinnerClass.REDUCED


def restricted(
    tmp_path: Path, *, set_: str = "", fix: str = "", exclude: str = "", numerics: str = "both"
) -> Space:
    restrictions = parse_restrictions(
        [set_] if set_ else [],
        [fix] if fix else [],
        [exclude] if exclude else [],
        numerics,  # type: ignore[arg-type]
    )
    return resolved(machine(tmp_path), "fake", FAKE_DEFAULTS, "fake", restrictions)


def test_set_narrows_fix_pins_exclude_leaves_alone(tmp_path: Path) -> None:
    space = restricted(tmp_path, set_="env.FAKE_THREADS=4,16")
    assert space.by_id["env.FAKE_THREADS"].choices == (2, 4, 16)
    space = restricted(tmp_path, fix="fake.layout=packed")
    assert all(c.get("fake.layout") == "packed" for c in space.configurations())
    assert space.neighbours(Configuration.of({"fake.layout": "packed"}))
    space = restricted(tmp_path, exclude="fake.compile")
    assert all(c.get("fake.compile") is None for c in space.configurations())


def test_same_numerics_leaves_precision_alone(tmp_path: Path) -> None:
    space = restricted(tmp_path, numerics="same")
    assert all(winner_class(c) is not WinnerClass.REDUCED for c in space.configurations())


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"set_": "fake.layout=striped"}, "allowed are plain, blocked, packed"),
        ({"fix": "env.FAKE_BLOCKTIME=1"}, "has no effect here: the fake framework does not read"),
        ({"fix": "fake.layout"}, "is not KNOB=VALUE"),
        ({"set_": "env.FAKE_THREADS=many"}, "allowed are 2, 1, 4, 8"),
        ({"set_": "env.FAKE_THREADS=0"}, "allowed are 2, 1, 4, 8"),
    ],
)
def test_what_cannot_be_set_is_refused(tmp_path: Path, options: dict[str, str], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        restricted(tmp_path, **options)


@pytest.mark.parametrize(
    ("set_", "fix", "exclude", "numerics"),
    [
        ([], ["a.b=1", "a.b=2"], [], "both"),
        (["a.b=1"], ["a.b=2"], [], "both"),
        ([], ["a.b=1"], ["a.b"], "both"),
        (["a.b=1"], [], ["a.b"], "both"),
        ([], ["torch.autocast=bf16"], [], "same"),
    ],
)
def test_contradictions_name_both_sides(
    set_: list[str], fix: list[str], exclude: list[str], numerics: str
) -> None:
    with pytest.raises(UsageError, match="contradicts"):
        parse_restrictions(set_, fix, exclude, numerics)  # type: ignore[arg-type]


def test_a_restricted_knob_must_belong_to_one_of_the_frameworks() -> None:
    profile = load_profile("auto", SEARCH_SPACES)
    only_torch = Restrictions(excluded=("torch.compile.mode",))
    check_known(only_torch, knob_ids(profile, ["torch", "tensorflow"]))
    with pytest.raises(UnknownName, match=r"unknown knob 'torch\.compile\.mode'"):
        check_known(only_torch, knob_ids(profile, ["tensorflow"]))
    with pytest.raises(UnknownName, match=r"did you mean torch\.compile\.mode"):
        check_known(Restrictions(fixed={"torch.compile.mod": "off"}), knob_ids(profile, ["torch"]))


def test_another_frameworks_restrictions_are_passed_over(tmp_path: Path) -> None:
    restrictions = Restrictions(fixed={"torch.compile.mode": "off"})
    space = resolved(machine(tmp_path), "tensorflow", TENSORFLOW_DEFAULTS, "auto", restrictions)
    assert "torch.compile.mode" not in space.by_id


def test_what_a_user_ruled_out_is_refused_with_the_option(tmp_path: Path) -> None:
    packed = Configuration.of({"fake.layout": "packed"})
    assert restricted(tmp_path, exclude="fake.layout").refused(packed) == "--exclude fake.layout"
    fixed = restricted(tmp_path, fix="fake.layout=blocked")
    assert fixed.refused(packed) == "--fix fake.layout=blocked"
    assert fixed.refused(Configuration.of({"fake.layout": "blocked"})) == ""
    assert restricted(tmp_path, set_="fake.layout=blocked").refused(packed)
    bf16 = Configuration.of({"fake.precision": "bf16"})
    assert restricted(tmp_path, numerics="same").refused(bf16) == "--numerics same"
