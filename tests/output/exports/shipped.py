"""Recommendations to export: plain, placed, in a team, and hostile."""

from collections.abc import Sequence

from tuner.host.libraries import library_named
from tuner.output.exports import TARGETS
from tuner.record.configuration import Value
from tuner.record.interval import Interval
from tuner.record.recommendation import (
    RECOMMENDATION_VERSION,
    Placement,
    Recommendation,
    RecommendedHost,
    RecommendedWorkload,
    Setting,
    ShippedClaim,
    Tolerances,
)
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import describe
from tuner.space.knobs_of.launch import PRELOADED

TCMALLOC = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
IOMP = "/opt/venv/lib/libiomp5.so"
"""As files of earlier versions tell where pip put it."""
PACKAGES = {
    "libmimalloc.so": "cmeel-mimalloc==3.4.3",
    "libiomp5.so": "intel-openmp==2026.2.0",
}
HOSTILE = '\'; touch /tmp/owned; $(OMP_NUM_THREADS) "$(touch /tmp/owned)" %n ${HOME} \\ : - # {{ }}'
"""A value that means something to every target; no control characters, which are refused."""


def shipped(
    settings: dict[str, Value] | None = None,
    environment: dict[str, str] | None = None,
    placements: list[Placement] | None = None,
    model: str = "resnet50",
    framework: str = "torch",
    memory_bytes: int | None = 700 << 20,
    batch: int = 16,
    launched: bool = True,
    packages: dict[str, str] | None = None,
) -> Recommendation:
    """launched: with an allocator and a thread count."""
    launch: dict[str, Value] = {"launch.allocator": "tcmalloc", "env.OMP_NUM_THREADS": 4}
    variables = {"OMP_NUM_THREADS": "4", "LD_PRELOAD": TCMALLOC}
    if not launched:
        launch, variables = {}, {}
    preloads = (variables | (environment or {})).get("LD_PRELOAD", "").split(":")
    for knob, libraries in PRELOADED.items():
        for library in libraries:
            if any(library_named(path) == library for path in preloads):
                launch[knob] = library
    if placements and len(placements) > 1:
        launch["launch.instances"] = len(placements)
    return Recommendation(
        schema_version=RECOMMENDATION_VERSION,
        winner_class=WinnerClass.SAME_PRECISION,
        workload=RecommendedWorkload(model, framework, "offline", batch),
        host=RecommendedHost("0" * 64, "A Xeon", 8, 16, 2),
        claim=(
            ShippedClaim("faster", 6, 0.01, Interval(1.5, 1.4, 1.6, 0.95))
            if settings or launch
            else ShippedClaim("keep_default", 6, 0.01)
        ),
        tolerances=Tolerances("same", 1e-4),
        versions={framework: "2.0"},
        environment=variables | (environment or {}),
        settings=[
            Setting(
                knob,
                value,
                str(describe(knob).applies),
                describe(knob).needs_code_change,
                describe(knob).how.format(value=value),
            )
            for knob, value in {**launch, **(settings or {})}.items()
        ],
        placements=placements or [Placement()],
        memory_bytes=memory_bytes,
        packages=packages or {},
    )


def exported(
    target: str, r: Recommendation, command: Sequence[str] = (), source: str = "recommended.toml"
) -> str:
    """Return the text of a target."""
    return TARGETS[target](r, command, source)


PLACED = [Placement("0-3", "bind:0")]
TEAM = [Placement("0-3", "bind:0"), Placement("4-7", "bind:1")]
CODE: dict[str, Value] = {"torch.compile.mode": "default", "torch.memory_format": "channels_last"}
FROM_PIP = shipped(environment={"LD_PRELOAD": ":".join(PACKAGES)}, packages=PACKAGES)
EVERY = {
    "plain": shipped(),
    "placed": shipped(placements=PLACED),
    "team": shipped(placements=TEAM),
    "interleaved": shipped(placements=[Placement(None, "interleave:0,1")]),
    "in the program": shipped(CODE),
    "from pip": FROM_PIP,
    "from pip, an earlier file": shipped(environment={"LD_PRELOAD": f"{IOMP}:{TCMALLOC}"}),
    "hostile": shipped(environment={"MALLOC_CONF": HOSTILE}, model=f"/m/{HOSTILE}\n!.py"),
    "nothing": shipped(launched=False),
    "one CPU of each core": shipped({"launch.cpus": "one_per_core"}, placements=[Placement("0-7")]),
}
