"""The schemas that ship are those of the structures."""

from pathlib import Path

import pytest

from tuner.record.files import SCHEMAS
from tuner.record.recommendation import READABLE_RECOMMENDATIONS
from tuner.record.result import READABLE_VERSIONS
from tuner.record.shipped_schemas import SHIPPED, schema_of


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_shipped_schemas_are_those_of_the_structures(path: Path) -> None:
    """If this fails after a change on purpose, raise the version and run: make schemas."""
    assert path.read_text() == schema_of(SHIPPED[path])


def test_every_schema_has_a_structure_or_is_of_an_earlier_version_that_can_be_read() -> None:
    earlier = {SCHEMAS / f"result-{n}.json" for n in READABLE_VERSIONS}
    earlier |= {SCHEMAS / f"recommended-{n}.json" for n in READABLE_RECOMMENDATIONS}
    assert set(SCHEMAS.glob("*.json")) == set(SHIPPED) | earlier
