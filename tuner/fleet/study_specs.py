"""The studies of a fleet: the options for every host, and the files that it must have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tuner.app.compatibility import AUTO
from tuner.app.request import Request, check_request
from tuner.app.tune_many import options_of, select
from tuner.errors import UsageError
from tuner.frameworks import FRAMEWORKS, OFFERED
from tuner.galleries import MODELS, SEARCH_SPACES
from tuner.host.identity import fingerprint
from tuner.host.libraries import installed_frameworks, read_versions
from tuner.launchers.describe import find_model, gallery_cards
from tuner.record.events import Listener, Warned
from tuner.record.index import Row
from tuner.space.profile_file import load_profile

_LONGEST = 60
"""Characters of a model in the name of a folder; each may be three bytes."""
_DIGITS = 8


class StudySpec(msgspec.Struct, frozen=True):
    """A study that is wished for on every kind of host."""

    model: str
    """As every host finds it: a built-in name, or a path that is the same everywhere."""
    path: str
    """Of its file, if it is no built-in one."""
    shown: str
    """As typed."""
    framework: str
    options: str
    """A hash over the options."""

    def row(self, kind: str) -> Row:
        """Return the row of one kind, with the folder that is its name everywhere."""
        label = "".join(c if c.isalnum() or c in "_.=@+-" else "-" for c in self.shown)
        label = label[-_LONGEST:].lstrip(".-")
        digits = fingerprint([self.options, self.shown])[:_DIGITS]
        folder = f"{label}-{self.framework}-{kind}-{digits}"
        return Row(self.shown, self.framework, folder=folder, kind=kind, options=self.options)


def specs_of(wanted: str, request: Request, listen: Listener) -> list[StudySpec]:
    """Return the requested studies; builds no model. Raises UsageError for invalid options.

    request: the result of as_everywhere.
    """
    check_request(request)
    frameworks = request.frameworks or installed_frameworks()
    if request.hardware != AUTO and not request.frameworks:
        device = load_profile(request.hardware, SEARCH_SPACES).device
        frameworks = tuple(name for name in frameworks if device in FRAMEWORKS[name].devices)
    built_in = {card.name: card for card in gallery_cards(MODELS)}
    found = []
    for name in select(wanted, list(built_in.values())):
        model, path, card = name, "", built_in.get(name)
        if card is None:
            ref, card = find_model(name, MODELS)
            if not Path(ref.path).is_relative_to(MODELS):
                path = ref.path
                _, at, parameters = name.partition("@")
                model = f"{path}{f':{ref.function}' if ref.function else ''}{at}{parameters}"
        there = [each for each in frameworks if each in card.frameworks]
        if not there:
            listen(Warned(f"{name} is not there for {' or '.join(frameworks)}: it is left out"))
        options = options_of(request, card)
        found += [StudySpec(model, path, name, framework, options) for framework in there]
    if not found:
        raise UsageError(f"--models {wanted}: none of them is there for a framework to tune")
    return found


def as_everywhere(request: Request) -> Request:
    """Return a request whose paths are valid from any folder."""

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else path.absolute()

    is_file = Path(request.hardware).is_file()
    return msgspec.structs.replace(
        request,
        hardware=str(Path(request.hardware).absolute()) if is_file else request.hardware,
        trace=absolute(request.trace),
        guidelines=absolute(request.guidelines),
        learn_from=tuple(each.absolute() for each in request.learn_from),
    )


def files_of(specs: Iterable[StudySpec], request: Request) -> list[str]:
    """Return the paths that every host has to have."""
    named = [request.trace, request.guidelines, *request.learn_from]
    profile = [request.hardware] if Path(request.hardware).is_file() else []
    models = [spec.path for spec in specs if spec.path]
    return sorted({*models, *profile, *(str(each) for each in named if each is not None)})


def versions_of(specs: Iterable[StudySpec]) -> dict[str, str]:
    """Return the versions here that every host has to have, of other frameworks none."""
    own = {spec.framework for spec in specs}
    others = {
        name
        for key in OFFERED
        if key not in own
        for name in (*FRAMEWORKS[key].distributions, FRAMEWORKS[key].package)
    }
    return {name: each for name, each in read_versions().items() if name not in others}
