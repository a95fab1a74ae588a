"""The JSON Schemas that ship with the product, made from the structures.

python -m tuner.record.shipped_schemas
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tuner.record.files import RECOMMENDATION_SCHEMA, RESULT_SCHEMA, write_whole
from tuner.record.guidelines import GUIDELINES_SCHEMA, RECORDING_SCHEMA, Guidelines, Recording
from tuner.record.recommendation import Recommendation
from tuner.record.result import Result

SHIPPED: dict[Path, type[msgspec.Struct]] = {
    RESULT_SCHEMA: Result,
    RECOMMENDATION_SCHEMA: Recommendation,
    GUIDELINES_SCHEMA: Guidelines,
    RECORDING_SCHEMA: Recording,
}


def schema_of(kind: type[msgspec.Struct]) -> str:
    """Return the JSON Schema (2020-12) of a file's structure, as the shipped files hold it."""
    schema = msgspec.json.schema(kind)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for path, kind in SHIPPED.items():
        write_whole(path, schema_of(kind))
