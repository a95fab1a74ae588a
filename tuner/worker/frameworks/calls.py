"""The calls of a prepared model: in a form that was built for their arguments, or as it is.

A form is built at the first call with each kind of arguments (structure, shapes, types, constants).
Other calls run the model itself, with one warning for each reason.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from tuner.worker.frameworks import Work
from tuner.worker.frameworks.prepared import Arguments, Unfit

MOST_KINDS = 8
"""Kinds of calls that a form is built for: with ever new shapes every call would build one. As many
as torch.compile compiles a function for (recompile_limit of torch._dynamo)."""
_PROGRAM = 4
"""The frame of the program's own line, counted from where a warning is made."""
_TOLD = {
    Unfit.TRAINING: "the model is in training mode, which no form is built for",
    Unfit.IN_A_GRAPH: "it is called while a graph is made of its caller",
    Unfit.ARGUMENT: "no form is built for {}",
    Unfit.KINDS: f"a form is built for {MOST_KINDS} kinds of inputs (shapes, types, keywords), and "
    "this is one more; give inputs of the same shapes, for instance by padding",
    Unfit.WEIGHTS: "its weights may have changed since a form was built, which would compute with "
    "those of before; prepare a model that is trained and loaded",
    Unfit.BUILD: "the form could not be built: {}",
}


@contextlib.contextmanager
def _without_deprecations() -> Iterator[None]:
    """Hide a framework's deprecation warnings from a program that turns warnings into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


class Calls:
    """Decides for each call of a model in which form it runs."""

    def __init__(self, work: Work) -> None:
        """Take the object that has the placed model and makes the forms."""
        self._work = work
        self._functions: dict[Hashable, Callable[..., Any]] = {}
        self._warned: set[Unfit] = set()
        self._weights: Hashable = ()
        """The kinds that forms were built for."""
        self._is_stale = False
        self._building = threading.Lock()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call."""
        work = self._work
        given = work.arguments(args, kwargs)
        if given.unfit in (Unfit.TRAINING, Unfit.IN_A_GRAPH):  # with gradients, or in that graph
            if given.unfit is Unfit.TRAINING:
                self.weights_change()
            self._warn(given.unfit, "")
            return work.model(*given.args, **given.kwargs)
        with work.running():
            if given.unfit is None and self._functions and given.weights != self._weights:
                self.weights_change()
            if given.unfit is None and self._is_stale:
                given = given._replace(unfit=Unfit.WEIGHTS)
            if given.unfit is None and given.kind in self._functions:
                return self._functions[given.kind](*given.args, **given.kwargs)
            result, unfit, detail = self._first(given)
        if unfit is not None:
            self._warn(unfit, detail)
        return result

    def weights_change(self) -> None:
        """Leave forms alone from now on that keep the weights that they were built with."""
        self._is_stale = self._is_stale or (self._work.folds_weights and bool(self._functions))

    def _first(self, given: Arguments) -> tuple[Any, Unfit | None, str]:
        """Make a call of a kind that was not met before; return why it is in no form, if so."""
        unfit, detail = given.unfit, given.detail
        with self._building:
            function = None if unfit else self._functions.get(given.kind)
            if unfit is None and function is None and len(self._functions) == MOST_KINDS:
                unfit = Unfit.KINDS
            elif unfit is None and function is None:
                try:
                    with _without_deprecations():
                        function = self._work.function(given.args, given.kwargs)
                    result = function(*given.args, **given.kwargs)
                except Exception as error:  # noqa: BLE001  # of a compiler, or of wrong inputs
                    unfit, detail = Unfit.BUILD, f"{type(error).__name__}: {error}"
                else:
                    self._weights = given.weights
                    self._functions[given.kind] = function
                    return result, None, ""
        if unfit is None and function is not None:  # another thread built it meanwhile
            return function(*given.args, **given.kwargs), None, ""
        result = self._work.model(*given.args, **given.kwargs)  # raises where the inputs are wrong
        if unfit is Unfit.BUILD:
            self._weights = given.weights
            self._functions[given.kind] = self._work.model
        return result, unfit, detail.strip().partition("\n")[0]

    def _warn(self, unfit: Unfit, detail: str) -> None:
        if unfit not in self._warned:
            self._warned.add(unfit)
            why = _TOLD[unfit].format(detail)
            warnings.warn(
                f"a call runs in the model as it was given: {why}; said once", stacklevel=_PROGRAM
            )
