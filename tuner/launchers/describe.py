"""What only a child process can tell: the cards of model files, the facts of a built model.

The tool itself never imports a model file: that would import a framework, with its threads, into
the process that measures.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from tuner.errors import UnknownName, UsageError
from tuner.launchers.asking import Deadline
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.record.configuration import Value
from tuner.record.headers import Headers
from tuner.record.load import INFERENCE
from tuner.record.protocol import (
    Cards,
    Describe,
    KeepWeights,
    ListModels,
    LookAt,
    MakeReference,
    ReferenceMade,
    Seen,
)
from tuner.record.workload import (
    CPU,
    CUDA,
    N_CHECK_REDUCED,
    VARIANT,
    ModelCard,
    ModelFacts,
    ModelRef,
)
from tuner.space.restrictions import parse_value

_UNWRITABLE = ("Cc", "Cs")
"""Unicode's categories of control characters, and of bytes that are not UTF-8."""
_SHELL = ("|", "||", "&&", "&", ";", ">", ">>", "<")
_APPLICATION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*(\(\))?")
"""As uvicorn, gunicorn and hypercorn take it: module:name."""


PATIENT = Deadline()
_NOTHING_SET: Mapping[str, Value] = MappingProxyType({})


def read_cards(
    models: Iterable[ModelRef],
    waiting: Deadline = PATIENT,
    *,
    each_variant: bool = False,
    testbed: Testbed = THIS_HOST,
) -> list[ModelCard]:
    """Read the cards of models, in order; with each_variant, those of all variants of a file."""
    refs = tuple(models)
    reply = testbed.ask(ListModels(refs, each_variant), refs, waiting)
    assert isinstance(reply, Cards)
    return list(reply.cards)


def gallery_cards(folder: Path, testbed: Testbed = THIS_HOST) -> list[ModelCard]:
    """Read the cards of every model, and of each of its variants, in a folder of model files."""
    refs = [ModelRef(p.stem, str(p)) for p in sorted(folder.glob("*.py"))]
    return read_cards(refs, each_variant=True, testbed=testbed)


def find_model(
    text: str,
    folder: Path,
    *,
    inputs: Path | None = None,
    allows_pickle: bool = False,
    batch_dim: int | None = None,
    waiting: Deadline = PATIENT,
    testbed: Testbed = THIS_HOST,
) -> tuple[ModelRef, ModelCard]:
    """Find a model as typed: NAME or a path, optionally @key=value,...

    A path is PATH.py, PATH.py:FUNCTION, or what frameworks save (worker/gallery/sources.py).
    NAME-NUMBER is NAME@size=NUMBER, and NAME-WORD NAME@variant=WORD, if there is a NAME that has
    it. inputs: recorded ones. batch_dim: the dimension of its inputs that is the batch.

    Raises UnknownName with close matches, and UsageError for what cannot be used.
    """
    ref = ref_of(
        text,
        folder,
        inputs=inputs,
        allows_pickle=allows_pickle,
        batch_dim=batch_dim,
        testbed=testbed,
    )
    card = read_cards([ref], waiting, testbed=testbed)[0]
    if card.fault:
        stem, dash, ending = text.partition("@")[0].rpartition("-")
        if dash and (VARIANT, ending) in ref.parameters and Path(ref.path).stem == stem:
            _check_known(text.partition("@")[0], folder, testbed)
        raise UsageError(card.fault)
    return ref, card


def ref_of(
    text: str,
    folder: Path,
    *,
    inputs: Path | None = None,
    allows_pickle: bool = False,
    batch_dim: int | None = None,
    testbed: Testbed = THIS_HOST,
) -> ModelRef:
    """Return the path of a model as typed, without reading it; raises as find_model does."""
    head, parameters = _parse(text)
    if not head.strip():
        raise UsageError(
            f"--model {text!r} names no model; name one: --model resnet50; list them with: "
            "tune-framework models"
        )
    name, colon, function = head.partition(":") if ".py:" in head else (head, "", "")
    stem, dash, ending = name.rpartition("-")
    short_for = ""
    if (folder / f"{name}.py").is_file():
        path = folder / f"{name}.py"
    elif (
        dash
        and (folder / f"{stem}.py").is_file()
        and (ending.isdecimal() or not Path(name).exists() or _is_built_in(name, folder, testbed))
    ):
        path = folder / f"{stem}.py"
        short_for = "size" if ending.isdecimal() else VARIANT
        if short_for in parameters:
            raise UsageError(f"--model {text!r} gives two {short_for}s; give one of them")
        parameters[short_for] = parse_value(ending) if ending.isdecimal() else ending
    else:
        path = Path(name)
        if not path.exists() and not path.suffix and "/" not in name:
            _check_known(name, folder, testbed)
        _check_writable(path)
        if not path.exists():
            raise UsageError(f"there is no model file {name}")
    if inputs is not None and not inputs.is_file():
        raise UsageError(f"there is no file {inputs} with inputs")
    if colon and not function:
        raise UsageError(f"--model {text!r} names no function after the colon")
    path = path.resolve()
    _check_writable(path)
    if inputs is not None:
        _check_writable(inputs.resolve())
    own = path.parent.name if path.name == "config.json" else path.stem
    return ModelRef(
        name=f"{own}-{function}" if function else own,
        path=str(path),
        parameters=tuple(sorted(parameters.items())),
        function=function,
        inputs=str(inputs.resolve()) if inputs else "",
        allows_pickle=allows_pickle,
        batch_dim=batch_dim,
    )


def _is_built_in(name: str, folder: Path, testbed: Testbed) -> bool:
    return name in {card.name for card in gallery_cards(folder, testbed)}


def _check_known(name: str, folder: Path, testbed: Testbed) -> None:
    """Raise UnknownName, with suggestions, for a name without a file in the gallery."""
    known = [card.name for card in gallery_cards(folder, testbed)]
    if name not in known:
        raise UnknownName(
            "model",
            name,
            known,
            "list them with: tune-framework models; or name a file or folder: see models/README.md",
        )


def _check_writable(path: Path) -> None:
    """Raise UsageError for a path that could not be written into the files of a study."""
    if any(unicodedata.category(c) in _UNWRITABLE for c in str(path)):
        raise UsageError(
            f"{str(path)!r} has control characters in it, or is not UTF-8: it could not be "
            "written into the files of a study; rename it"
        )


class Found(NamedTuple):
    """A user's own program or server, which was started once."""

    ref: ModelRef
    card: ModelCard
    facts: dict[str, ModelFacts]
    """Facts by framework, for those that it uses."""


def find_program(text: str, waiting: Deadline = PATIENT, testbed: Testbed = THIS_HOST) -> Found:
    """Take a program as typed as the workload, and run it once to see which framework it uses.

    Raises UsageError for one that cannot be started, fails, or does not report its speed.
    """
    ref = _program_as_typed("--command", text, "python bench.py")
    return _started("--command", ref, waiting, testbed)


def find_service(
    text: str,
    url: str,
    requests: Path,
    headers: Headers = (),
    waiting: Deadline = PATIENT,
    testbed: Testbed = THIS_HOST,
) -> Found:
    """Take a server as typed as the workload, and start it once to see which framework it uses.

    url: its address; requests: a file or folder of them.

    Raises UsageError for one that cannot be started, or does not answer with a success.
    """
    typed = _program_as_typed("--serve", text, "uvicorn app:app --port {port}")
    _check_writable(requests)
    ref = msgspec.structs.replace(typed, url=url, inputs=str(requests.absolute()), headers=headers)
    return _started("--serve", ref, waiting, testbed)


def _started(option: str, ref: ModelRef, waiting: Deadline, testbed: Testbed) -> Found:
    reply = testbed.ask(LookAt(ref), [ref], waiting)
    assert isinstance(reply, Seen)
    if fault := reply.card.fault:
        is_of_another = fault.startswith(("--requests ", "--header "))
        raise UsageError(fault if is_of_another else f"{option}: {fault}")
    return Found(ref, reply.card, reply.facts)


def _program_as_typed(option: str, text: str, example: str) -> ModelRef:
    """Return a program to be started here; raises UsageError if there is no such program."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option} {text!r} cannot be read: {error}") from error
    if not words:
        raise UsageError(f"{option} is empty; write for instance {option} '{example}'")
    if found := next((word for word in words if word in _SHELL), None):
        raise UsageError(
            f"{option} is started without a shell, so that {found} is nothing to it; write a "
            f"script, or: {option} \"sh -c '...'\""
        )
    if Path(words[0]).is_file() and not os.access(words[0], os.X_OK):
        raise UsageError(f"{option}: {words[0]} is not executable: chmod +x {words[0]}")
    if shutil.which(words[0]) is None:
        raise UsageError(f"{option}: there is no program {words[0]}")
    return ModelRef(name=_name_of(words), path=str(Path.cwd()), command=words)


def _name_of(words: Sequence[str]) -> str:
    """Name a program as people would: by its file, by its app:app, by itself."""
    files = (word for word in words[1:] if os.path.isfile(word))  # noqa: PTH113  # or too long
    modules = (word.partition(":")[0] for word in words[1:] if _APPLICATION.fullmatch(word))
    return Path(next(files, next(modules, words[0]))).stem


def _parse(text: str) -> tuple[str, dict[str, Value]]:
    """Split the typed text into the model and its parameters."""
    if os.path.exists(text):  # noqa: PTH110  # pathlib raises for what is too long for a name
        return text, {}
    begins = re.search(r"@[^\W\d]\w*=", text)
    at = begins.start() if begins else text.rfind("@", text.rfind("/") + 1)
    if at < 0:
        return text, {}
    head, tail = text[:at], text[at + 1 :]
    parameters: dict[str, Value] = {}
    for part in filter(None, tail.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"{part!r} in --model {text!r} is not key=value")
        parameters[key] = parse_value(value)
    return head, parameters


def make_reference(
    ref: ModelRef,
    framework: str,
    seed: int,
    path: Path,
    n_inputs: int = N_CHECK_REDUCED,
    waiting: Deadline = PATIENT,
    gpu: str = "",
    sample_seed: int = 0,
    settings: Mapping[str, Value] = _NOTHING_SET,
    testbed: Testbed = THIS_HOST,
    mode: str = INFERENCE,
) -> None:
    """Have a child of its own write the study's reference; raises UsageError if it cannot.

    n_inputs: how many outputs of the default are kept to compare with. gpu: the UUID of the card
    that computes; empty for the CPU. sample_seed: which elements of large outputs are kept.
    settings: of a server that does not answer without them.
    """
    order = MakeReference(
        ref,
        framework,
        seed,
        str(path.absolute()),
        n_inputs,
        _device(gpu),
        sample_seed,
        dict(settings),
        mode,
    )
    reply = testbed.ask(order, [ref], waiting, gpu, then=KeepWeights())
    assert isinstance(reply, ReferenceMade)


def describe_model(
    ref: ModelRef,
    framework: str,
    seed: int,
    waiting: Deadline = PATIENT,
    gpu: str = "",
    testbed: Testbed = THIS_HOST,
    mode: str = INFERENCE,
) -> ModelFacts:
    """Build the model with nothing set, in a child, and return its facts."""
    order = Describe(ref, framework, seed, _device(gpu), mode)
    reply = testbed.ask(order, [ref], waiting, gpu)
    assert isinstance(reply, ModelFacts)
    return reply


def _device(gpu: str) -> str:
    return CUDA if gpu else CPU
