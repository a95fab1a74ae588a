"""The needs of a recommendation beyond settings that a target can hold, as comment lines."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.engines import ENGINES, EngineEntry
from tuner.errors import UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.output.exports.preloads import libraries, needed
from tuner.record.load import TRAINING
from tuner.record.recommendation import Placement, Recommendation
from tuner.record.workload import CUDA
from tuner.space.catalogue import is_applied_inside
from tuner.space.knobs_of.engines import ENGINE, QUANTIZATION
from tuner.space.knobs_of.launch import CPUS, MAX_WAIT

_COMPILED = ("torch.compile.mode", "torch.export.mode")
"""Settings with which TorchInductor builds C++ when the program runs."""
_HUGE = ("hugetlb", "MIMALLOC_LARGE_OS_PAGES", "THP_MEM_ALLOC_ENABLE", "thp:")


def comments(lines: Sequence[str]) -> list[str]:
    """Return lines as comments: one line each, whatever is in them."""
    # systemd before 254 takes a comment that ends in a backslash to go on in the next line
    return [
        f"# {_one_line(line).rstrip()}{'.' * line.rstrip().endswith(chr(92))}" for line in lines
    ]


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def max_wait_ms(recommendation: Recommendation) -> int | None:
    """Return how long requests wait for others to fill a batch; None without requests."""
    if recommendation.slo is None:
        return None
    settings = {setting.knob: setting.value for setting in recommendation.settings}
    return int(settings.get(MAX_WAIT, 0))


def heading(recommendation: Recommendation, source: str) -> list[str]:
    """Write the claim, its workload and host; source: the name of the recommendation's file."""
    r = recommendation
    claim = r.nothing_set
    if r.claim.speedup is not None and not claim:
        s = r.claim.speedup
        claim = f"{s.point:.2f} times as fast as the default ({s.low:.2f} - {s.high:.2f})"
        if r.is_expected:
            claim = f"expected, and not measured here: {claim}; tune-framework verify proves it"
    workload = r.workload
    text = "for" if r.is_expected else "measured on"
    load = f"{workload.load_in_words()}, batch {workload.batch}"
    return [
        f"{source}: {workload.model}, {workload.framework}, {load}: {claim}",
        f"{text} {_computed(r)}; elsewhere it may differ",
    ]


def needs_gpu(recommendation: Recommendation) -> bool:
    """Tell whether it was a card that computed."""
    return recommendation.workload.device == CUDA


def _computed(recommendation: Recommendation) -> str:
    """Name what computed, and what launched it."""
    host = recommendation.host
    cpu = f"{host.cpu}, {host.physical_cores} cores"
    gpus = host.identity.get("gpus") if needs_gpu(recommendation) else None
    return f"{gpus[0]['name']} beside {cpu}" if gpus else cpu


def program_changes(recommendation: Recommendation, source: str) -> list[str]:
    """Write what the program itself must do; source: the recommendation's file."""
    lines = [
        f"the program itself must: {setting.knob}={setting.value}: {setting.how}"
        for setting in recommendation.settings
        if setting.needs_code_change
    ]
    if any(is_applied_inside(setting.knob) for setting in recommendation.settings):
        text = "or" if recommendation.is_expected else "or, as it was measured"
        learns = recommendation.workload.mode == TRAINING
        call = "prepare_training(model, optimizer)" if learns else "prepare(model)"
        lines.append(f"{text}: tuner.apply({source!r}).{call} in the program")
    return lines


def needs_compiler(recommendation: Recommendation) -> bool:
    """Tell whether something is compiled when the program runs."""
    return any(setting.knob in _COMPILED for setting in recommendation.settings)


def engine_of(recommendation: Recommendation) -> EngineEntry | None:
    """Return the engine that carries out the model instead of its framework; None for none."""
    settings = {setting.knob: setting.value for setting in recommendation.settings}
    return ENGINES.get(str(settings.get(ENGINE)))


def on_the_image(recommendation: Recommendation) -> list[str]:
    """Write what must be installed where the program runs."""
    lines = [needed(library) for library in libraries(recommendation)]
    if needs_compiler(recommendation):
        lines.append("needs a C++ compiler (g++) where the program runs, which compiles there")
    own: tuple[str, ...] = ()
    if entry := engine_of(recommendation):
        lines.append(f"needs {entry.title}: {entry.install}")
        if entry.quantizers and any(s.knob == QUANTIZATION for s in recommendation.settings):
            needed_too = ", ".join(entry.quantizers)
            lines.append(f"needs {needed_too}, which quantises: {entry.install_quantizers}")
        own = entry.distributions
    if versions := recommendation.versions:
        distributions = FRAMEWORKS[recommendation.workload.framework].distributions
        telling = ("python", *distributions, *own)
        shown = ", ".join(f"{name} {versions[name]}" for name in sorted(versions)
                          if name in telling)  # fmt: skip
        text = "for" if recommendation.is_expected else "measured with"
        lines.append(f"{text} {shown}")
    return lines


def on_the_node(recommendation: Recommendation) -> list[str]:
    """Write what the kernel must allow, and which device must exist."""
    r = recommendation
    lines = []
    if needs_gpu(r):
        lines.append(
            "needs an NVIDIA GPU and its driver; in a container NVIDIA's container toolkit as well"
        )
    settings = [f"{k}={v}" for k, v in r.environment.items() if any(h in f"{k}={v}" for h in _HUGE)]
    lines += [
        f"{each}: needs huge pages of the kernel "
        "(/sys/kernel/mm/transparent_hugepage/enabled, or vm.nr_hugepages for reserved ones)"
        for each in settings
    ]
    return lines


def placing_command(placement: Placement) -> list[str]:
    """Return the command that gives a program its CPUs and memory policy; empty for none."""
    cpus = placement.cpus or ""
    policy, _, nodes = placement.memory_policy.partition(":")
    if policy == "none":
        return ["taskset", "--cpu-list", cpus] if cpus else []
    placed = [f"--physcpubind={cpus}"] if cpus else []
    memory = "--membind" if policy == "bind" else "--interleave"
    return ["numactl", *placed, f"{memory}={nodes}", "--"]


def notes(recommendation: Recommendation, source: str) -> list[str]:
    """Return the first lines of every file: what it is, and what else it needs.

    source: the name of the recommendation's file.
    """
    r = recommendation
    return [*heading(r, source), *program_changes(r, source), *on_the_image(r), *on_the_node(r)]


def n_cpus(recommendation: Recommendation) -> int:
    """Return the CPUs of one instance, siblings that it leaves alone included."""
    r = recommendation
    cpus = r.placements[0].cpus
    if cpus is None:
        return r.host.cpus or r.host.physical_cores
    parts = [part.partition("-") for part in cpus.split(",")]
    n = sum(int(last or first) - int(first) + 1 for first, _, last in parts)
    return n * r.host.threads_per_core if leaves_siblings(r) else n


def leaves_siblings(recommendation: Recommendation) -> bool:
    """Tell whether one CPU of each core is used, and the others are left alone."""
    is_one = any((s.knob, s.value) == (CPUS, "one_per_core") for s in recommendation.settings)
    return is_one and recommendation.host.threads_per_core > 1


def refuse_training(target: str, recommendation: Recommendation) -> None:
    """Raise UsageError if a target that serves models is given settings of training."""
    if recommendation.workload.mode == TRAINING:
        raise UsageError(
            f"--to {target} serves models, and these settings were confirmed for training: write "
            "--to python, shell, docker or kubernetes"
        )


def refuse_command(target: str, command: Sequence[str]) -> None:
    """Raise UsageError if a program is given to a target that starts none."""
    if command:
        raise UsageError(f"--to {target} starts no program of yours: leave out -- {command[0]} ...")
