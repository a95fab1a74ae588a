"""Whether a model, frameworks, a host and a device suit each other, before anything is built."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tuner.app.request import Request
from tuner.errors import UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host
from tuner.host.libraries import installed_devices, installed_frameworks, missing_framework
from tuner.record.output_check import MAX_DRIFT_TRAINING
from tuner.record.workload import CPU, CUDA, ModelCard
from tuner.space.profile import Profile
from tuner.space.profile_file import gallery, load_profile
from tuner.space.resolve import profile_matches

BYTES_PER_PARAMETER = 4
"""Weights are float32 before anything is tuned."""
_LARGER = 2
"""By how many steps of its own a model's series of batches goes on, on a card: what computes a
hundred times as fast is not filled by what fills a CPU."""


AUTO = "auto"
"""The profile name for choosing one by this host."""


def candidate_frameworks(request: Request, card: ModelCard) -> tuple[str, ...]:
    """Return the frameworks in which a model may be tuned here: those named, or all."""
    installed = installed_frameworks()
    return request.frameworks or tuple(f for f in card.frameworks if f in installed)


def choose_profile(
    name: str, host: Host, device: str | None = None, frameworks: Collection[str] = ()
) -> Profile:
    """Load a hardware profile; "auto" is the shipped one that matches this host.

    device: limits the choice to profiles for it. frameworks: the candidates. Without a device, a
    card is chosen only if one of them can be measured on it here.
    """
    if name != AUTO:
        return load_profile(name, SEARCH_SPACES)
    shipped = [load_profile(path, SEARCH_SPACES) for path in gallery(SEARCH_SPACES)]
    here = {each for framework in frameworks for each in installed_devices(framework)} or {CPU}
    wanted = here if device is None else {device}
    possible = [profile for profile in shipped if profile.device in wanted]
    # a card is what its host is for
    possible.sort(key=lambda profile: profile.device == CPU)
    named = [p for p in possible if p.matches and profile_matches(p, host)]
    # where none names this host, what is wrong with the device is said later (check_device)
    others = [p for p in possible if p.name == AUTO or p.device == device != CPU]
    return (named or others)[0]


def in_training(card: ModelCard) -> ModelCard:
    """Return the card of a model that learns: losses and gradients decide, and not its outputs."""
    return msgspec.structs.replace(card, tolerance=MAX_DRIFT_TRAINING, accuracy_loss=None)


def left_out(profile: Profile, host: Host, frameworks: Collection[str]) -> str:
    """Say which card or framework auto leaves out although the user named none; empty if none."""
    if not host.gpus:
        return ""
    not_there = [name for name in frameworks if CUDA not in FRAMEWORKS[name].devices]
    why = [f"{name} is not measured on GPUs by this version" for name in not_there]
    if profile.device == CUDA:
        return "; ".join(f"left out: {each}" for each in why)
    why = [
        f"{name} is a build without CUDA here" for name in frameworks if name not in not_there
    ] + why
    return f"the CPU is measured, and {host.gpus[0].name} left alone: {', '.join(why)}"


def check_device(profile: Profile, host: Host) -> None:
    """Raise UsageError if the device of a profile is missing, or is only part of a card."""
    if profile.device != CUDA:
        return
    if not host.gpus:
        raise UsageError(
            f"--hw {profile.name} measures on an NVIDIA GPU, and this process sees none "
            "(nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide them): name the processor's "
            "profile, or auto"
        )
    card = host.gpus[0]
    if card.is_partitioned:
        raise UsageError(
            f"{card.name} is partitioned (MIG), and this version measures whole cards only: take "
            "another card with CUDA_VISIBLE_DEVICES, or tune the CPU with another --hw"
        )


def on_device(card: ModelCard, device: str) -> ModelCard:
    """Return the card of a model with the batches that are tried on a device.

    A model's file states them for CPUs: 4 and 16 go on with 64 and 256 on a GPU.
    """
    if device != CUDA or len(card.batches) < 2:
        return card
    *_, before, last = card.batches
    step = max(2, last // before)
    larger = tuple(last * step ** (i + 1) for i in range(_LARGER))
    return msgspec.structs.replace(card, batches=(*card.batches, *larger))


def frameworks_for(request: Request, card: ModelCard, device: str) -> tuple[str, ...]:
    """Return the frameworks to tune: the named ones, else every installed one with the model."""
    installed = installed_frameworks()
    for name in request.frameworks:
        if name not in card.frameworks:
            raise UsageError(
                f"{request.model or card.title} is not there for {name}; it is there for "
                f"{', '.join(card.frameworks)}"
            )
        if name not in installed:
            raise missing_framework(name)
    possible = tuple(f for f in card.frameworks if device in FRAMEWORKS[f].devices)
    wanted = request.frameworks or possible
    if wrong := [name for name in wanted or card.frameworks if name not in possible]:
        raise UsageError(
            f"{wrong[0]} is not tuned on GPUs by this version: tune it on the CPU with another "
            "--hw (tune-framework spaces lists them)"
        )
    found = request.frameworks or tuple(f for f in possible if f in installed)
    if not found:
        raise missing_framework(possible[0])
    return found


def the_framework(request: Request, card: ModelCard, device: str) -> str:
    """Return the one framework of a command that measures one; raises UsageError if it is open."""
    found = frameworks_for(request, card, device)
    if len(found) > 1:
        raise UsageError(
            f"{request.model} is there for {' and '.join(found)}: choose one with --framework"
        )
    return found[0]


def frameworks_meant(
    request: Request, card: ModelCard, frameworks: Collection[str]
) -> tuple[str, ...]:
    """Return the frameworks whose knobs a request may restrict; frameworks: those that it tunes.

    If a study continues, also those with which it was begun: their restrictions do not matter to
    it.
    """
    begun = card.frameworks if request.extends else ()
    return tuple(dict.fromkeys([*frameworks, *request.together, *begun]))


def check_memory(card: ModelCard, host: Host, device: str = CPU) -> None:
    """Raise UsageError for a model whose weights alone exceed the memory of host or card.

    Checked before building it, which would take minutes and might be ended by the kernel's OOM
    killer.
    """
    needed, there = card.n_parameters * BYTES_PER_PARAMETER, host.limits.memory_bytes
    if needed > there:
        raise UsageError(
            f"{card.name} has {needed / 2**30:.1f} GiB of weights alone, and this host has "
            f"{there / 2**30:.1f} GiB of memory: take a smaller variant "
            f"(tune-framework models {card.name}) or a larger host"
        )
    if device == CUDA and needed > host.gpus[0].memory_bytes:
        raise UsageError(
            f"{card.name} has {needed / 2**30:.1f} GiB of weights alone, and {host.gpus[0].name} "
            f"has {host.gpus[0].memory_bytes / 2**30:.1f} GiB of memory: take a smaller variant "
            f"(tune-framework models {card.name}), or tune the CPU with another --hw"
        )
