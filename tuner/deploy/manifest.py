"""The containers of a manifest, of Kubernetes or docker compose, read as a launch file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import yaml

from tuner.deploy.commands import Commands
from tuner.deploy.env_file import read_env
from tuner.deploy.launched import Assignment, Gap, Launched, LaunchFile, Scope, Value, joined
from tuner.deploy.shell import Shell
from tuner.errors import UsageError
from tuner.host.environment import is_tuning_variable

_OF_CONTAINERS = ("env", "envFrom", "image", "resources")
"""A mapping of Kubernetes that has one of these, and a name or an env, is a container."""


def read_manifest(path: Path, text: str) -> LaunchFile:
    """Read the services of docker compose, and the containers of Kubernetes.

    Raises UsageError for invalid YAML.
    """
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        words = " ".join(str(error).split())[:200]
        raise UsageError(f"{path} is no YAML: {words}") from error
    file = LaunchFile([])
    seen: set[int] = set()
    for document in documents:
        services = _fields(document).get("services")
        if isinstance(services, yaml.MappingNode):
            for name, node in _fields(services).items():
                _Container(file, path.parent, name, Scope.CONTAINER).read_service(_fields(node))
            continue
        for node in _mappings(document, seen):
            fields = _fields(node)
            is_container = "env" in fields or ("name" in fields and fields.keys() & _OF_CONTAINERS)
            if is_container:
                name = _text(fields.get("name"))
                _Container(file, path.parent, name, Scope.IMAGE).read_pod(fields)
    return file


def _fields(node: yaml.Node | None, depth: int = 0) -> dict[str, yaml.Node]:
    """Return a mapping's fields, with those of the mappings that it merges (<<)."""
    found: dict[str, yaml.Node] = {}
    if not isinstance(node, yaml.MappingNode) or depth > 10:
        return found
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for each in reversed(merged):
                found = {**_fields(each, depth + 1), **found}
    own = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
    return {**found, **{key: value for key, value in own.items() if key != "<<"}}


def _mappings(document: yaml.Node | None, seen: set[int]) -> Iterator[yaml.MappingNode]:
    """Yield every mapping once: an alias is the node that it names."""
    waiting = [document]
    while waiting:
        node = waiting.pop(0)
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _text(node: yaml.Node | None) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else ""


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else [] if node is None else [node]


class _Container:
    """A container or service while its fields are read."""

    def __init__(self, file: LaunchFile, folder: Path, name: str, scope: Scope) -> None:
        self._file = file
        self._folder = folder
        self._is_compose = scope is Scope.CONTAINER
        self._launched = Launched(name, scope)
        self._values: dict[str, Value] = {}
        file.launched.append(self._launched)

    def read_service(self, fields: dict[str, yaml.Node]) -> None:
        """Read a service of docker compose."""
        launched = self._launched
        for node in _items(fields.get("env_file")):
            path = _fields(node).get("path", node)
            read_env(self._value(_text(path)), _line(node), launched, self._folder)
        n_of_files = len(launched.assignments)
        self._environment(fields.get("environment"))
        own = {each.name for each in launched.assignments[n_of_files:]}
        launched.assignments = [  # what stands here wins over what stands in files
            each for i, each in enumerate(launched.assignments)
            if i >= n_of_files or each.name not in own
        ]  # fmt: skip
        limits = _fields(_fields(_fields(fields.get("deploy")).get("resources")).get("limits"))
        for holder, key in ((fields, "cpus"), (limits, "cpus")):
            self._limit(holder.get(key), "cpus: ")
        for holder, key in ((fields, "mem_limit"), (limits, "memory")):
            if (node := holder.get(key)) is not None:
                launched.limit_memory(self._value(_text(node)), _line(node), f"{key}: ")
        quota = fields.get("cpu_quota")
        if quota is not None and _text(quota).isdecimal():
            share = Value(f"{int(_text(quota)) / 100_000:g}")
            launched.limit_cpus(share, _line(quota), "cpu_quota / 100000 = ")
        for key, is_nodes in (("cpuset", False), ("cpuset_mems", True)):
            if (node := fields.get(key)) is not None:
                launched.place(self._value(_text(node)), _line(node), key, is_nodes=is_nodes)
        if (node := fields.get("extends")) is not None:
            launched.note(_line(node), "extends", Gap.ELSEWHERE)
        self._command([fields.get("entrypoint")])
        self._command([fields.get("command")])

    def read_pod(self, fields: dict[str, yaml.Node]) -> None:
        """Read a container of Kubernetes."""
        for node in _items(fields.get("envFrom")):
            self._launched.note(_line(node), "envFrom", Gap.ELSEWHERE)
        self._environment(fields.get("env"))
        limits = _fields(_fields(fields.get("resources")).get("limits"))
        self._limit(limits.get("cpu"), "cpu: ")
        if (node := limits.get("memory")) is not None:
            self._launched.limit_memory(Value(_text(node)), _line(node), "memory: ")
        self._command([fields.get("command"), fields.get("args")])

    def _limit(self, node: yaml.Node | None, by: str) -> None:
        if node is not None:
            self._launched.limit_cpus(self._value(_text(node)), _line(node), by)

    def _value(self, text: str) -> Value:
        """Return a text with its variables replaced: ${X:-1} of compose, $(X) of a pod."""
        if self._is_compose:
            shell = Shell(LaunchFile([]), Launched(), self._folder)
            parts = [shell.interpolated(part) for part in text.split("$$")]
            gap = next((part.gap for part in parts if part.gap), None)
            unless = next((part.unless for part in parts if part.unless), "")
            return Value("$".join(part.text for part in parts), gap, unless)
        value = Value(text)
        for name in re.findall(r"\$\(([A-Za-z_]\w*)\)", text):
            known = self._values.get(name, Value(f"$({name})", Gap.NOT_SET_HERE))
            replaced = value.text.replace(f"$({name})", known.text)
            value = Value(replaced, value.gap or known.gap, value.unless or known.unless)
        return joined([value], "(...)")

    def _environment(self, held: yaml.Node | None) -> None:
        for node in _items(held):
            line = _line(node)
            if held is node:  # a mapping
                for name, value in _fields(node).items():
                    self._set(name, value, _line(value))
            elif isinstance(node, yaml.ScalarNode):
                name, equals, text = node.value.partition("=")
                self._set(name, yaml.ScalarNode("", text) if equals else None, line)
            else:
                parts = _fields(node)
                self._set(_text(parts.get("name")), parts.get("value"), line)

    def _set(self, name: str, node: yaml.Node | None, line: int) -> None:
        if isinstance(node, yaml.ScalarNode) and node.tag != "tag:yaml.org,2002:null":
            value = self._value(node.value)
            self._values[name] = value
            self._launched.take(
                Assignment(name, value.text, line, gap=value.gap, unless=value.unless)
            )
        elif is_tuning_variable(name):  # of a secret, a field of the pod, or the caller's own
            self._launched.note(line, name, Gap.NOT_SET_HERE)

    def _command(self, held: list[yaml.Node | None]) -> None:
        words: list[Value] = []
        line = 0
        for node in held:
            if node is None:
                continue
            line = line or _line(node)
            if isinstance(node, yaml.ScalarNode) and self._is_compose:
                try:
                    words += [self._value(word) for word in shlex.split(node.value)]
                except ValueError:
                    self._launched.note(line, node.value, Gap.SYNTAX)
            else:
                words += [self._value(_text(each)) for each in _items(node)]
        commands = Commands(self._file, self._launched, self._folder)
        commands.begin()
        commands.read(words, line)
