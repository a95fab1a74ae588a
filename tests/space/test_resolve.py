from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.space.spaces import (
    FAKE_DEFAULTS,
    TENSORFLOW_DEFAULTS,
    TORCH_DEFAULTS,
    machine,
    model,
    resolved,
    workload,
)
from tuner.engines import ENGINES
from tuner.errors import UnknownName, UsageError
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host
from tuner.record.configuration import Configuration, Value
from tuner.record.numerics import Level, Numerics, admitted
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import OF_PROGRAMS
from tuner.space.baselines import resolve_baselines
from tuner.space.catalogue import KNOBS, class_title, level_of, narrowest_class
from tuner.space.listing import upper_size
from tuner.space.profile_file import load_profile
from tuner.space.resolve import knob_ids, resolve_space, without_effect
from tuner.space.resolved_knob import UNSET
from tuner.space.restrictions import Restrictions, check_known, parse_restrictions, parse_value
from tuner.space.space import Space


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return resolved(machine(tmp_path), "fake", FAKE_DEFAULTS, "fake")


def test_a_value_that_is_in_force_anyway_is_the_default(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    assert torch.canonical({"env.OMP_NUM_THREADS": 8}) == Configuration()
    assert torch.canonical({"env.OMP_NUM_THREADS": 4}) != Configuration()


@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "concurrent"])
def test_what_goes_to_one_process_keeps_one_instance_busy(tmp_path: Path, scenario: str) -> None:
    """Whatever asks for more of them, a vendor or a user, is told that they would idle."""
    host = machine(tmp_path, cores=8)
    space = resolved(host, "torch", TORCH_DEFAULTS, scenario=scenario)
    assert "launch.instances" not in {knob.id for knob in space.searched}
    assert "launch.instances" in {
        knob.id for knob in resolved(host, "torch", TORCH_DEFAULTS).searched
    }
    asked = without_effect(space, Restrictions(fixed={"launch.instances": 2}))
    assert "all requests go to one process" in asked["--fix launch.instances=2"]
    streamed = workload("torch", scenario=scenario)
    profile = load_profile("xeon", SEARCH_SPACES)
    found = {
        b.name: b for b in resolve_baselines(profile, host, streamed, model(TORCH_DEFAULTS), space)
    }
    latency = found["xeon_run_cpu_latency"]
    assert "launch.instances" not in latency.configuration.as_dict()
    assert any("one process" in text for text in latency.dead_settings)


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
    assert [knob for knob, _ in tensorflow.ineffective(both)] == ["tensorflow.auto_mixed_precision"]


def test_dead_knobs_of_guides_are_told_with_the_reason(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    ((knob, why),) = torch.ineffective({"env.KMP_BLOCKTIME": 1})
    assert knob == "env.KMP_BLOCKTIME"
    assert "libgomp" in why
    ((knob, why),) = torch.ineffective({"torch.interop_threads": 1})
    assert "TorchScript" in why


def test_every_configuration_is_canonical_and_comes_once(space: Space) -> None:
    everything = list(space.configurations())
    assert len(everything) == len(set(everything)) == upper_size(space) == 864
    assert all(space.contains(c) and space.canonical(c.as_dict()) == c for c in everything[::7])


def test_neighbours_differ_in_one_knob_and_are_mutual(space: Space) -> None:
    here = Configuration.of({"fake.layout": "packed", "env.FAKE_THREADS": 8})
    around = space.adjacent(here)
    assert len(around) == 3 + 2 + 1 + 2 + 2 + 1 + 1
    for other in around:
        assert here in space.adjacent(other)
        assert len(set(here.settings) ^ set(other.settings)) in (1, 2)


@pytest.mark.parametrize("profile", ["xeon", "epyc", "arm"])
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_every_choice_of_a_live_knob_is_a_neighbour_of_the_default(
    tmp_path: Path, framework: str, profile: str
) -> None:
    defaults = TORCH_DEFAULTS if framework == "torch" else TENSORFLOW_DEFAULTS
    space = resolved(machine(tmp_path, cores=8), framework, defaults, profile)
    reached = {knob for c in space.adjacent(Configuration()) for knob, _ in c.settings}
    live = {
        knob.id for knob in space.searched
        if not space.ineffective({knob.id: next(v for v in knob.choices if v != knob.default)})
    }  # fmt: skip
    assert reached == live
    assert len(live) > 10


def test_layout_is_no_knob_for_a_model_without_images(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS, kind="transformer")
    assert torch.canonical({"torch.memory_format": "channels_last"}) == Configuration()


@pytest.mark.parametrize(("ranks", "is_live"), [((), True), ((1, 2, 4), True), ((1, 2, 3), False)])
def test_layout_is_no_knob_where_no_weights_are_of_images(
    tmp_path: Path, ranks: tuple[int, ...], is_live: bool
) -> None:
    """A network of one-dimensional convolutions is of the kind cnn, too."""
    profile, facts = load_profile("auto", SEARCH_SPACES), model(TORCH_DEFAULTS)
    facts = msgspec.structs.replace(facts, parameter_ranks=ranks)
    host, asked = machine(tmp_path, cores=8), workload("torch", "cnn")
    torch = resolve_space(profile, host, asked, facts, Restrictions())
    made = torch.canonical({"torch.memory_format": "channels_last"})
    assert (made != Configuration()) is is_live


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
        return narrowest_class(Configuration.of(dict.fromkeys(knobs, "x")))

    assert of("workload.batch", "env.ANY", "launch.allocator") is WinnerClass.NO_CODE
    assert of("env.ANY", "torch.compile.mode") is WinnerClass.SAME_PRECISION
    assert of("torch.interop_threads") is WinnerClass.SAME_PRECISION
    assert of("torch.autocast") is WinnerClass.REDUCED_PRECISION
    assert of("env.DNNL_DEFAULT_FPMATH_MODE") is WinnerClass.REDUCED_PRECISION


def test_launch_only_allows_what_is_set_without_changing_the_program() -> None:
    """The batch is the caller's; how long a request waits for others is the program's own code."""
    allowed = {
        knob.id
        for knob in KNOBS.values()
        if narrowest_class(Configuration.of({knob.id: "x"})) is WinnerClass.NO_CODE
    }
    assert "workload.batch" in allowed
    assert "server.max_wait_ms" not in allowed
    assert {str(KNOBS[knob].applies) for knob in allowed - {"workload.batch"}} == {"launch"}
    assert not any(KNOBS[knob].needs_code_change for knob in allowed)


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


def test_a_value_with_commas_stands_in_quotes() -> None:
    text = 'env.KMP_AFFINITY="granularity=fine,compact,1,0",none'
    asked = parse_restrictions([text], [], [], "both")
    assert asked.values == {"env.KMP_AFFINITY": ("granularity=fine,compact,1,0", "none")}


def test_a_variable_of_ones_own_may_be_searched(tmp_path: Path) -> None:
    space = restricted(tmp_path, set_="env.MY_LIBRARY_MODE=fast,slow")
    assert space.by_id["env.MY_LIBRARY_MODE"].choices == (UNSET, "fast", "slow")
    check_known(parse_restrictions(["env.MY_MODE=1"], [], [], "both"), ["env.FAKE_THREADS"])


def test_a_slip_of_the_keyboard_is_no_variable_of_ones_own() -> None:
    knobs = ["env.OMP_DYNAMIC", "env.OMP_NUM_THREADS"]
    for text in ("env.OMP_DINAMIC", "env.OPM_NUM_THREADS", "env.OMP_NUMTHREADS"):
        with pytest.raises(UnknownName, match=r"did you mean env\.OMP_"):
            check_known(parse_restrictions([f"{text}=1"], [], [], "both"), knobs)
    with pytest.raises(UnknownName, match=r"did you mean env\.KMP_BLOCKTIME"):
        check_known(parse_restrictions(["env.KMP_BLOKTIME=1"], [], [], "both"), knobs)
    for text in ("env.MKL_DYNAMIC", "env.OMP_THREAD_LIMIT", "env.OMP_NUM_TEAMS"):
        check_known(parse_restrictions([f"{text}=1"], [], [], "both"), knobs)


def test_what_no_file_could_hold_as_a_number_is_text() -> None:
    for text in ("nan", "inf", "1e999", "1_000", "\u0663", str(10**20), "9" * 5000):
        assert parse_value(text) == text
    assert [parse_value(text) for text in ("7", " -2", "2.5", "1e3")] == [7, -2, 2.5, 1000.0]


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            '[[knob]]\nid = "env.OMP_NUM_THREADS"\nvalues = ["=host.physical_cores / 16"]',
            "knob env.OMP_NUM_THREADS: '=host.physical_cores / 16' comes to 0.125 here; "
            "env.OMP_NUM_THREADS cannot be 0.125",
        ),
        (
            '[[baseline]]\nname = "theirs"\nsource = "x"\nframeworks = ["fake"]\n'
            'settings = { "launch.instances" = "=0 * host.physical_cores" }',
            "baseline theirs: '=0 .*' comes to 0 here; launch.instances cannot be 0",
        ),
    ],
)
def test_what_a_formula_comes_to_is_checked(tmp_path: Path, entry: str, fault: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'schema_version = 1\ntitle = "x"\n{entry}\n')
    profile, work = load_profile(str(path), SEARCH_SPACES), workload("fake")
    host, facts = machine(tmp_path), model(FAKE_DEFAULTS)
    with pytest.raises(UsageError, match=fault):
        space = resolve_space(profile, host, work, facts, Restrictions())
        resolve_baselines(profile, host, work, facts, space)


def test_more_instances_than_cores_are_dropped_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('schema_version = 1\ntitle = "x"\n[[knob]]\nid = "launch.instances"\n'
                    "values = [2, 99]\n")  # fmt: skip
    profile = load_profile(str(path), SEARCH_SPACES)
    host, facts = machine(tmp_path, cores=2), model(FAKE_DEFAULTS)
    space = resolve_space(profile, host, workload("fake"), facts, Restrictions())
    assert space.by_id["launch.instances"].choices == (1, 2)
    assert space.by_id["launch.instances"].dropped == ((99, "only 2 cores may be used here"),)


def test_set_narrows_fix_pins_exclude_leaves_alone(tmp_path: Path) -> None:
    space = restricted(tmp_path, set_="env.FAKE_THREADS=4,16")
    assert space.by_id["env.FAKE_THREADS"].choices == (2, 4, 16)
    space = restricted(tmp_path, fix="fake.layout=packed")
    assert all(c.get("fake.layout") == "packed" for c in space.configurations())
    assert space.adjacent(Configuration.of({"fake.layout": "packed"}))
    space = restricted(tmp_path, exclude="fake.compile")
    assert all(c.get("fake.compile") is None for c in space.configurations())


def test_same_numerics_leaves_precision_alone(tmp_path: Path) -> None:
    space = restricted(tmp_path, numerics="same")
    assert all(
        narrowest_class(c) is not WinnerClass.REDUCED_PRECISION for c in space.configurations()
    )


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"set_": "fake.layout=striped"}, "allowed are: plain, blocked, packed"),
        ({"fix": "launch.instances=lots"}, "launch.instances cannot be 'lots'"),
        ({"set_": "env.OMP_NUM_THREADS=banana"}, "env.OMP_NUM_THREADS cannot be 'banana'"),
        ({"fix": f"workload.batch={10**20}"}, "workload.batch cannot be '1000"),
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
    with pytest.raises(UsageError, match=r"torch\.compile\.mode is no knob of this space"):
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


def test_the_stronger_name_of_a_setting_is_that_setting(tmp_path: Path) -> None:
    """PyTorch takes MKL_NUM_THREADS before OMP_NUM_THREADS."""
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    both: dict[str, Value] = {"env.OMP_NUM_THREADS": 4, "env.MKL_NUM_THREADS": 2}
    assert torch.canonical(both) == Configuration.of({"env.OMP_NUM_THREADS": 2})
    assert torch.ineffective(both) == []
    tensorflow = resolved(machine(tmp_path, cores=8), "tensorflow", TENSORFLOW_DEFAULTS)
    assert tensorflow.canonical(both) == Configuration()
    assert {knob for knob, _ in tensorflow.ineffective(both)} == set(both)


def test_another_openmp_brings_its_own_settings_to_life(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    blocktime: dict[str, Value] = {"env.KMP_BLOCKTIME": 1}
    assert torch.canonical(blocktime) == Configuration()
    both = {**blocktime, "launch.openmp": "libomp"}
    assert torch.canonical(both) == Configuration.of(both)


def test_what_no_library_reads_is_dead(tmp_path: Path) -> None:
    facts = model(TENSORFLOW_DEFAULTS, TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE="no library knows it")
    space = resolve_space(
        load_profile("auto", SEARCH_SPACES),
        machine(tmp_path, cores=8),
        workload("tensorflow"),
        facts,
        Restrictions(),
    )
    knob = "env.TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE"
    assert space.by_id[knob].choices == (UNSET,)
    assert space.ineffective({knob: "false"}) == [(knob, "no library knows it")]


def test_asking_for_what_can_have_no_effect_is_told(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8)
    setting = "env.KMP_AFFINITY=compact"

    def told(framework: str, *, exclude: tuple[str, ...] = (), fix: bool = False) -> dict[str, str]:
        asked = parse_restrictions(
            [] if fix else [setting], [setting] if fix else [], exclude, "both"
        )
        defaults = TORCH_DEFAULTS if framework == "torch" else TENSORFLOW_DEFAULTS
        return without_effect(resolved(host, framework, defaults, restrictions=asked), asked)

    only = "only libiomp5 and libomp read KMP_*"
    assert told("tensorflow")[f"--set {setting}"].startswith(only)
    assert told("torch") == {}  # beside another OpenMP runtime
    assert told("torch", exclude=("launch.openmp",))[f"--set {setting}"].startswith(only)
    assert told("torch", fix=True)[f"--fix {setting}"].startswith(only)


def test_another_name_of_a_knob_narrows_the_knob(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8)
    for set_, fix in ((["env.MKL_NUM_THREADS=3"], []), ([], ["env.MKL_NUM_THREADS=3"])):
        asked = parse_restrictions(set_, fix, [], "both")
        space = resolved(host, "torch", TORCH_DEFAULTS, restrictions=asked)
        assert 3 in space.by_id["env.OMP_NUM_THREADS"].choices
        assert space.adjacent(space.canonical({"env.OMP_NUM_THREADS": 3}))
    both = parse_restrictions(["env.MKL_NUM_THREADS=3"], ["env.OMP_NUM_THREADS=2"], [], "both")
    with pytest.raises(UsageError, match="another name of"):
        resolved(host, "torch", TORCH_DEFAULTS, restrictions=both)


def test_the_weaker_name_of_a_setting_gives_way(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8, flags="avx512f amx_bf16")
    torch = resolved(host, "torch", TORCH_DEFAULTS)
    old, new = "env.DNNL_DEFAULT_FPMATH_MODE", "env.ONEDNN_DEFAULT_FPMATH_MODE"
    assert torch.canonical({old: "BF16"}) == Configuration.of({new: "BF16"})
    assert torch.canonical({old: "BF16", new: "TF32"}) == Configuration.of({new: "TF32"})


def test_letters_of_either_case_are_one_value(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    upper, lower = ({"env.OMP_PROC_BIND": value} for value in ("CLOSE", "close"))
    assert torch.canonical(upper) == torch.canonical(lower) != Configuration()
    assert torch.canonical({"env.OMP_PROC_BIND": "FALSE"}) == Configuration()


def test_places_without_binding_are_dropped_with_it(tmp_path: Path) -> None:
    """OMP_PLACES alone binds: a guide that says "not bound, places cores" must not turn into it."""
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    graviton: dict[str, Value] = {"env.OMP_PROC_BIND": "false", "env.OMP_PLACES": "cores"}
    assert torch.canonical(graviton) == Configuration()
    assert [knob for knob, _ in torch.ineffective(graviton)] == ["env.OMP_PLACES"]


def test_a_default_that_follows_the_mask_is_kept_where_the_mask_is_narrowed(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, sockets=2, cores=4), "torch", TORCH_DEFAULTS)
    on_node: dict[str, Value] = {"launch.numa_node": 0, "env.OMP_NUM_THREADS": 8}
    assert torch.canonical(on_node, is_literal=True) == Configuration.of(on_node)
    assert torch.canonical(on_node) == Configuration.of({"launch.numa_node": 0})
    assert torch.canonical({"env.OMP_NUM_THREADS": 8}, is_literal=True) == Configuration()


def test_knobs_that_are_dead_here_do_not_count_as_combinations(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    assert len(torch.by_id["launch.cpus"].choices) == 1  # no SMT
    assert torch.never_live("launch.cpus") == "no physical core has a second hardware thread here"
    smt = resolved(machine(tmp_path / "smt", cores=8, threads=2), "torch", TORCH_DEFAULTS)
    assert smt.by_id["launch.cpus"].choices == ("all", "one_per_core")


def test_one_step_leads_from_one_way_to_lower_precision_to_the_other(tmp_path: Path) -> None:
    tensorflow = resolved(machine(tmp_path, cores=8), "tensorflow", TENSORFLOW_DEFAULTS)
    guide = Configuration.of({"tensorflow.keras_policy": "mixed_bfloat16"})
    other = Configuration.of({"tensorflow.auto_mixed_precision": "bf16"})
    assert other in tensorflow.adjacent(guide)
    torch = resolved(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS)
    guide = Configuration.of({"torch.autocast": "bf16"})
    assert Configuration.of({"torch.dtype": "bf16"}) in torch.adjacent(guide)


def test_memory_is_bound_or_interleaved_but_not_both(tmp_path: Path) -> None:
    torch = resolved(machine(tmp_path, sockets=2, cores=4), "torch", TORCH_DEFAULTS)
    both: dict[str, Value] = {"launch.numa_node": 1, "launch.memory_policy": "interleave"}
    assert torch.canonical(both) == Configuration.of({"launch.numa_node": 1})


@pytest.mark.parametrize(
    ("framework", "form", "gone"),
    [
        ("torch", "script", {"torch.compile.mode": "freezing"}),
        ("torch", "script", {"torch.export.mode": "aot_inductor"}),
        ("torch", "export", {"torch.dtype": "bf16"}),
        ("tensorflow", "saved", {"tensorflow.keras_policy": "mixed_bfloat16"}),
    ],
)
def test_what_was_saved_cannot_be_made_into_everything(
    tmp_path: Path, framework: str, form: str, gone: dict[str, Value]
) -> None:
    defaults = TORCH_DEFAULTS if framework == "torch" else TENSORFLOW_DEFAULTS
    host, profile = machine(tmp_path), load_profile("auto", SEARCH_SPACES)
    for each, is_dead in (("code", False), (form, True)):
        space = resolve_space(
            profile, host, workload(framework, form=each), model(defaults), Restrictions()
        )
        assert (space.canonical(gone) == Configuration()) == is_dead, each


def test_of_a_program_the_launch_alone_is_tuned_and_recipes_say_what_is_left_out(
    tmp_path: Path,
) -> None:
    host, profile = machine(tmp_path), load_profile("auto", SEARCH_SPACES)
    program, facts = workload("torch", form="program"), model({"launch.allocator": "glibc"})
    space = resolve_space(profile, host, program, facts, Restrictions())
    assert "launch.allocator" in space.by_id
    assert "torch.compile.mode" not in space.by_id
    found = {b.name: b for b in resolve_baselines(profile, host, program, facts, space)}
    compiled = found["torch_guide_compile"]
    assert not compiled.is_applicable
    told = "the program itself must set torch.memory_format, torch.compile.mode"
    assert compiled.reason == told


@pytest.mark.parametrize("form", OF_PROGRAMS)
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", ["arm", "auto", "epyc", "xeon"])
def test_no_formula_asks_for_what_a_program_does_not_have(
    tmp_path: Path, name: str, framework: str, form: str
) -> None:
    """Settings that the program itself must set are no facts of its space."""
    defaults = TORCH_DEFAULTS if framework == "torch" else TENSORFLOW_DEFAULTS
    profile, program = load_profile(name, SEARCH_SPACES), workload(framework, form=form)
    facts = model({k: v for k, v in defaults.items() if not k.startswith(f"{framework}.")})
    space = resolve_space(profile, machine(tmp_path), program, facts, Restrictions())
    assert not [k for k in space.by_id if k.startswith(("torch.", "tensorflow."))]
    if framework == "tensorflow":
        flags: dict[str, Value] = {
            "env.TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
        }
        frozen: dict[str, Value] = {"env.TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "true"}
        assert space.canonical(flags) == Configuration.of(flags)
        assert space.canonical(frozen) == Configuration()


@pytest.mark.parametrize(
    ("framework", "defaults", "own", "threads"),
    [
        ("torch", TORCH_DEFAULTS, "torch.compile.mode", "env.OMP_NUM_THREADS"),
        ("tensorflow", TENSORFLOW_DEFAULTS, "tensorflow.frozen", "env.TF_NUM_INTRAOP_THREADS"),
    ],
)
def test_another_engine_has_its_own_settings_and_none_of_the_frameworks(
    tmp_path: Path, framework: str, defaults: dict[str, Value], own: str, threads: str
) -> None:
    """But the number of threads, the allocator and the processes."""
    host = replace(machine(tmp_path), engines=tuple(ENGINES))
    space = resolved(host, framework, defaults, "auto")
    assert space.by_id["engine.name"].choices == ("framework", "onnxruntime", "openvino")
    mode: Value = "default" if framework == "torch" else True
    both: dict[str, Value] = {
        "engine.name": "onnxruntime",
        "onnxruntime.spinning": False,
        "openvino.pinning": False,
        own: mode,
        threads: 1,
        "launch.instances": 2,
    }
    kept = space.canonical(both).as_dict()
    assert kept.keys() == {"engine.name", "onnxruntime.spinning", threads, "launch.instances"} - (
        {threads} if kept.get(threads) is None else set()
    )
    dead = dict(space.ineffective(both))
    assert dead["openvino.pinning"] == "a setting of OpenVINO"
    assert "a setting of the framework" in dead[own] or "another engine" in dead[own]
    # without an engine, the framework's are live and the engines' are not
    alone = {knob: value for knob, value in both.items() if knob != "engine.name"}
    assert own in space.canonical(alone).as_dict()
    assert {"onnxruntime.spinning", "openvino.pinning"} <= dict(space.ineffective(alone)).keys()


def test_without_an_engine_nothing_is_searched_of_it(tmp_path: Path) -> None:
    space = resolved(machine(tmp_path), "torch", TORCH_DEFAULTS, "auto")
    assert space.by_id["engine.name"].choices == ("framework",)
    dropped = dict(space.by_id["engine.name"].dropped)
    assert dropped["openvino"] == (
        "OpenVINO is not installed: pip install 'tune-framework[openvino]'"
    )
    assert not [k.id for k in space.searched if k.id.startswith(("engine", "onnx", "openvino"))]


def test_openvino_keeps_the_allocator_of_the_system(tmp_path: Path) -> None:
    """Whatever else is preloaded makes it crash; ONNX Runtime takes any."""
    space = resolved(
        replace(machine(tmp_path), engines=tuple(ENGINES)), "torch", TORCH_DEFAULTS, "auto"
    )
    both: dict[str, Value] = {"launch.allocator": "jemalloc", "engine.name": "openvino"}
    assert space.canonical(both).as_dict() == {"launch.allocator": "jemalloc"}
    assert dict(space.ineffective(both))["engine.name"].startswith("OpenVINO crashes")
    both["engine.name"] = "onnxruntime"
    assert space.canonical(both).as_dict() == both


def test_a_fixed_setting_of_the_framework_rules_other_engines_out(tmp_path: Path) -> None:
    host = replace(machine(tmp_path), engines=tuple(ENGINES))
    asked = parse_restrictions([], ["torch.compile.mode=freezing"], [], "both")
    space = resolved(host, "torch", TORCH_DEFAULTS, "auto", asked)
    assert space.by_id["engine.name"].choices == ("framework",)
    engine = Configuration.of({"engine.name": "onnxruntime"})
    assert space.refused(engine) == "--fix torch.compile.mode=freezing"


def test_a_number_of_threads_of_the_engine_makes_the_frameworks_dead(tmp_path: Path) -> None:
    host = replace(machine(tmp_path, cores=4), engines=tuple(ENGINES))
    space = resolved(host, "torch", TORCH_DEFAULTS, "auto")
    both: dict[str, Value] = {
        "engine.name": "openvino", "engine.threads": 2, "env.OMP_NUM_THREADS": 3
    }  # fmt: skip
    assert "env.OMP_NUM_THREADS" in dict(space.ineffective(both))
    # two processes share four cores: neither can have three threads on cores of its own
    several: dict[str, Value] = {
        "engine.name": "openvino", "engine.threads": 3, "launch.instances": 2
    }  # fmt: skip
    assert "engine.threads" in dict(space.ineffective(several))


INT8 = Configuration.of({"engine.name": "openvino", "engine.quantization": "int8_static"})


def on_vnni(root: Path, isa: tuple[str, ...], *quantizers: str) -> Host:
    host = machine(root)
    processor = replace(host.processor, isa=isa)
    return replace(host, engines=tuple(ENGINES), quantizers=quantizers, processor=processor)


@pytest.mark.parametrize("numerics", ["same", "reduced", "both", "int8"])
def test_int8_is_searched_only_where_it_is_asked_for(tmp_path: Path, numerics: Numerics) -> None:
    host = on_vnni(tmp_path, ("avx512_vnni",), *ENGINES)
    restrictions = parse_restrictions([], [], [], numerics)
    space = resolved(host, "torch", TORCH_DEFAULTS, "auto", restrictions)
    is_asked = numerics == "int8"
    small = ("int8_dynamic", "int8_static") if is_asked else ()
    assert space.by_id["engine.quantization"].choices == ("none", *small)
    assert space.refused(INT8) == ("" if is_asked else f"--numerics {numerics}")
    work, facts = workload("torch"), model(TORCH_DEFAULTS)
    listed = resolve_baselines(
        load_profile("auto", SEARCH_SPACES), host, work, facts, space, admitted(numerics)
    )
    assert any("int8" in baseline.name for baseline in listed) is is_asked


@pytest.mark.parametrize(
    "isa", [("avx512_vnni",), ("avx_vnni",), ("amx_int8",), ("i8mm",), ("avx512f",)]
)
def test_without_instructions_for_eight_bits_int8_is_not_tried(
    tmp_path: Path, isa: tuple[str, ...]
) -> None:
    restrictions = parse_restrictions([], [], [], "int8")
    space = resolved(
        on_vnni(tmp_path, isa, *ENGINES), "torch", TORCH_DEFAULTS, "auto", restrictions
    )
    found = space.by_id["engine.quantization"]
    assert (len(found.choices) == 3) is (isa != ("avx512f",))
    assert all("sums may overflow" in why for _, why in found.dropped)


def test_each_engine_has_the_quantization_that_it_can_have(tmp_path: Path) -> None:
    restrictions = parse_restrictions([], [], [], "int8")
    host = on_vnni(tmp_path, ("avx512_vnni",), "onnxruntime")
    space = resolved(host, "torch", TORCH_DEFAULTS, "auto", restrictions)
    assert dict(space.ineffective(INT8.as_dict()))["engine.quantization"].startswith("NNCF is not")
    dynamic = INT8.with_value("engine.quantization", "int8_dynamic")
    assert dict(space.ineffective(dynamic.as_dict()))["engine.quantization"].startswith("OpenVINO")
    by_onnx = INT8.with_value("engine.name", "onnxruntime")
    assert space.canonical(by_onnx.as_dict()) == by_onnx
    alone = {"engine.quantization": "int8_static"}
    assert "engine.quantization" in dict(space.ineffective(alone))


def test_int8_is_a_level_of_its_own_below_reduced_precision() -> None:
    bf16 = Configuration.of({"torch.autocast": "bf16"})
    assert [level_of(c) for c in (Configuration(), bf16, INT8)] == [*Level]
    assert narrowest_class(INT8) is narrowest_class(bf16) is WinnerClass.REDUCED_PRECISION
    assert class_title(WinnerClass.REDUCED_PRECISION, INT8) == "int8"
