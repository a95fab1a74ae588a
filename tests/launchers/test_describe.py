from pathlib import Path

import pytest

from tuner.errors import UnknownName, UsageError
from tuner.galleries import MODELS
from tuner.launchers.describe import describe_model, find_model, gallery_cards

pytestmark = pytest.mark.usefixtures("forked")


def test_the_gallery_is_read_in_a_child() -> None:
    cards = {card.name: card for card in gallery_cards(MODELS)}
    assert {"resnet50", "fake"} <= cards.keys()
    assert not any(card.fault for card in cards.values())
    assert cards["resnet50"].frameworks == ("torch", "tensorflow")
    assert cards["resnet50"].batches == (4, 16)


def test_parameters_are_part_of_the_name() -> None:
    ref, _ = find_model("fake@seed=3,noise=0.5,faults=fake.layout=packed:crash", MODELS)
    assert dict(ref.parameters) == {
        "seed": 3,
        "noise": 0.5,
        "faults": "fake.layout=packed:crash",
    }
    assert find_model(ref.label(), MODELS)[0] == ref


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("resnet5", UnknownName, "did you mean resnet50"),
        ("fake@seed", UsageError, "is not key=value"),
        ("fc-64@size=32", UsageError, "gives two sizes"),
        ("nowhere.py", UsageError, "there is no model file nowhere.py"),
    ],
)
def test_a_model_that_is_not_there(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find_model(text, MODELS)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def torch(): pass", "states no MODEL"),
        ("syntax error here", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "cannot be loaded"),
    ],
)
def test_a_broken_model_file_is_one_line(tmp_path: Path, source: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(UsageError, match=message):
        find_model(str(path), MODELS)


def test_the_built_model_tells_its_facts() -> None:
    ref, _ = find_model("fake", MODELS)
    facts = describe_model(ref, "fake", 0)
    assert facts.n_parameters == 512
    assert facts.input_shapes == ((16,),)
    assert facts.input_types == ("float32",)
    assert (facts.parameter_bytes, facts.macs) == (2048, 512)
    assert describe_model(ref, "fake", 1).parameters_sha256 == facts.parameters_sha256
    assert facts.effective_defaults["fake.layout"] == "plain"
    assert facts.effective_defaults["launch.allocator"] == "glibc"


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(UsageError, match="takes no parameter 'sed'"):
        find_model("fake@sed=3", MODELS)


def test_a_number_behind_a_name_is_its_size() -> None:
    ref, card = find_model("fc-64", MODELS)
    assert (ref.name, dict(ref.parameters)) == ("fc", {"size": 64})
    assert card.n_parameters == 11 * 65 * 64
    assert find_model(ref.label(), MODELS)[0] == ref
