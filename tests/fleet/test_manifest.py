"""The manifest for KubeRay is what its operator and Kubernetes take."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from tuner.fleet.cluster import SLOT

MANIFEST = Path(__file__).parent.parent.parent / "docs" / "kuberay.yaml"
HEAD: dict[str, Any] = {
    "type": "object",
    "required": ["rayStartParams", "template"],
    "properties": {
        "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
        "template": {"type": "object", "required": ["spec"]},
    },
    "additionalProperties": False,
}
COUNT = {"type": "integer", "minimum": 0}
GROUP = {
    **HEAD,
    "required": [*HEAD["required"], "groupName", "minReplicas", "maxReplicas"],
    "properties": {
        **HEAD["properties"],
        "groupName": {"type": "string"},
        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), COUNT),
    },
}
RAY_CLUSTER = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayCluster"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["headGroupSpec"],
            "properties": {
                "rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
                "headGroupSpec": HEAD,
                "workerGroupSpecs": {"type": "array", "items": GROUP},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
"""What is used of the type RayCluster (ray.io/v1, ray-operator/apis/ray/v1/raycluster_types.go)."""


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    return found


def test_it_is_a_ray_cluster() -> None:
    jsonschema.validate(manifest(), RAY_CLUSTER)


def test_its_pods_are_pods() -> None:
    spec = manifest()["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        template = group["template"]
        metadata = {"name": "a", **template.get("metadata", {})}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        kubernetes_validate.validate(pod, "1.30", strict=True)


def test_each_host_has_one_slot_and_whole_cores() -> None:
    (group,) = manifest()["spec"]["workerGroupSpecs"]
    resources = json.loads(json.loads(group["rayStartParams"]["resources"]))
    assert resources == {SLOT: 1}
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert int(container["resources"]["limits"]["cpu"]) > 0
