"""The containers of a manifest, of Kubernetes or docker compose, read as a launch file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from tuner.deploy.launched import ASSIGNMENT, Assignment, Launched, LaunchFile, take
from tuner.errors import UsageError
from tuner.host.environment import is_tuning_variable

_ENVIRONMENTS = ("env", "environment")
"""Of a pod's container, of a service of docker compose."""


def read_manifest(path: Path, text: str) -> LaunchFile:
    """Read the containers of a manifest: every mapping that has an `env`, and its limit of CPUs."""
    found = LaunchFile([], [])
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        raise UsageError(f"{path} is no YAML: {told}") from error
    seen: set[int] = set()
    for document in documents:
        for node in _mappings(document, seen):
            fields = _fields(node)
            held = next((fields[name] for name in _ENVIRONMENTS if name in fields), None)
            if isinstance(held, yaml.SequenceNode | yaml.MappingNode):
                found.launched.append(_container(fields, held, found))
    return found


def _fields(node: yaml.MappingNode) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


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


def _container(
    fields: dict[str, yaml.Node], held: yaml.SequenceNode | yaml.MappingNode, found: LaunchFile
) -> Launched:
    name = fields.get("name")
    launched = Launched(name.value if isinstance(name, yaml.ScalarNode) else "")
    entries: list[tuple[str, yaml.Node | None, int]] = []
    if isinstance(held, yaml.MappingNode):  # of docker compose
        entries = [(k, v, v.start_mark.line + 1) for k, v in _fields(held).items()]
    else:
        for entry in held.value:
            line = entry.start_mark.line + 1
            if isinstance(entry, yaml.ScalarNode) and (match := ASSIGNMENT.fullmatch(entry.value)):
                entries.append((match[1], yaml.ScalarNode("", match[2]), line))
            elif isinstance(entry, yaml.MappingNode):
                parts = _fields(entry)
                named = parts.get("name")
                told = named.value if isinstance(named, yaml.ScalarNode) else ""
                entries.append((told, parts.get("value"), line))
    for told, value, line in entries:
        if isinstance(value, yaml.ScalarNode):
            take(launched, found, Assignment(told, value.value, line))
        elif is_tuning_variable(told):
            found.not_understood.append((line, f"{told} (its value does not stand here)"))
    launched.cpu_limit = _cpu_limit(fields.get("resources"))
    return launched


def _cpu_limit(resources: yaml.Node | None) -> float | None:
    node: yaml.Node | None = resources
    for key in ("limits", "cpu"):
        if not isinstance(node, yaml.MappingNode):
            return None
        node = _fields(node).get(key)
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(m?)", str(text))
    return None if match is None else float(match[1]) / (1000 if match[2] else 1)
