"""Where models come from: what is refused, and that nothing of it was executed."""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import of_all_processes
from tests.once import once
from tests.wants import needs
from tests.worker.describing import Asked, described
from tests.worker.workers import Launched
from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.launchers.describe import describe_model, find_model, read_cards
from tuner.record.launch import Checked
from tuner.record.protocol import Failed
from tuner.record.workload import ModelRef
from tuner.worker.gallery.tensorflow_files import KerasFile


class Trap:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


slow = pytest.mark.slow


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        find_model(text, MODELS)
    message = str(caught.value)
    assert "\n" not in message
    return message


def samples(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


@slow
@needs("torch")
def test_a_pickled_module_is_refused_and_not_loaded(tmp_path: Path) -> None:
    import torch

    sprung = tmp_path / "sprung"
    torch.save(Trap(sprung), tmp_path / "module.pt")
    message = refused(str(tmp_path / "module.pt"))
    assert "is a pickle of torch.save" in message
    assert "torch.export.save" in message
    assert not sprung.exists()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program as a user exports it, for a batch of 8."""
    import torch

    folder = of_all_processes(tmp_path_factory, "exported")
    path = folder / "good.pt2"
    with once(folder) as is_first:
        if is_first:
            program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(8, 4),))
            torch.export.save(program, path)
    return path


@slow
@needs("torch")
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("where", ["weights", "constants", "sample_inputs", "aotinductor"])
def test_pickles_inside_an_exported_program_are_refused_unless_allowed(
    exported: Path, tmp_path: Path, where: str
) -> None:
    import torch

    trapped, sprung = tmp_path / "bad.pt2", tmp_path / "sprung"
    buffer = io.BytesIO()
    torch.save(Trap(sprung), buffer)
    with (
        zipfile.ZipFile(exported) as good,
        zipfile.ZipFile(trapped, "w", zipfile.ZIP_STORED) as bad,
    ):
        for item in good.infolist():
            data = good.read(item)
            if where == "weights" and item.filename.endswith("weights_config.json"):
                config = json.loads(data)
                for payload in config["config"].values():
                    payload["use_pickle"] = True
                data = json.dumps(config).encode()
            elif where == "constants" and item.filename.endswith("constants_config.json"):
                weights = next(n for n in good.namelist() if n.endswith("weights_config.json"))
                (payload, *_) = json.loads(good.read(weights))["config"].values()
                opaque = {**payload, "path_name": "opaque_obj_0", "is_param": False}
                data = json.dumps({"config": {"opaque": opaque}}).encode()
            elif where in item.filename and item.filename.endswith(("weight_0", "model.pt")):
                data = buffer.getvalue()
            bad.writestr(item.filename.replace("good/", "bad/", 1), data)
        if where == "constants":
            trap = pickle.dumps(Trap(sprung))
            bad.writestr("bad/data/constants/opaque_obj_0", trap + b"." * (-len(trap) % 4))
        if where == "aotinductor":
            bad.writestr("bad/data/aotinductor/model/model.so", b"")
    assert "--allow-pickle" in refused(str(trapped))
    assert not sprung.exists()
    if where == "sample_inputs":
        with pytest.raises(UsageError, match="cannot read"):  # what was unpickled is no input
            find_model(str(trapped), MODELS, allows_pickle=True)
        assert sprung.exists()


@slow
@needs("torch")
@pytest.mark.usefixtures("forked")
def test_an_exported_program_has_the_batch_that_it_was_exported_with(exported: Path) -> None:
    ref, card = find_model(str(exported), MODELS)
    assert (card.form, card.batches, card.kind) == ("export", (8,), "mlp")
    assert describe_model(ref, "torch", 0).n_parameters == 10


@needs("tensorflow")
def test_marshalled_code_in_a_keras_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lambda.keras"
    layer = {"class_name": "__lambda__", "config": {"value": "4wEAAAA="}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps({"config": {"layers": [layer]}}))
    assert "marshalled Python" in refused(str(path))


def test_a_lambda_that_a_model_was_compiled_with_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "loss.keras"
    loss = {"class_name": "__lambda__", "config": {"value": "4wEAAAA="}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps({"compile_config": {"loss": loss}}))
    assert KerasFile(ModelRef("loss", str(path))).frameworks() == ("tensorflow",)


@needs("torch")
def test_pickled_weights_of_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    assert "safetensors" in refused(str(tmp_path))
    assert not (tmp_path / "sprung").exists()


OWN = """
def bare():
    from torch import nn
    return nn.Linear(4, 2)
def text():
    return "a model"
def absent():
    import not_installed_here
def broken():
    raise ValueError("as a user's code may")
def pair():
    from torch import nn
    return nn.Bilinear(4, 4, 2)
def mapping():
    import torch
    return torch.nn.Linear(4, 2), {"x": torch.ones(4, 4)}
def half():
    import torch
    return torch.nn.Linear(4, 2).to(torch.bfloat16)
def constant():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Threshold(1e9, 1.0))
def folded():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Flatten(0))
"""


Unusable = tuple[str, dict[str, np.ndarray], str]
UNUSABLE: list[Unusable] = [
    ("own.py", {}, "states no MODEL"),
    ("own.py:bare", {}, "return a pair (model, one batch of inputs)"),
    ("own.py:text", {}, "neither a torch.nn.Module nor a keras.Model"),
    ("own.py:nothing", {}, "own.py 'nothing': there are bare, text"),
    ("own.py:broken", {}, "ValueError: as a user's code may (line 10)"),
    ("own.py:bare", {"x": np.ones((3, 4))}, "holds 3 samples of x; at least 8"),
    ("own.py:pair", {"x": np.ones((9, 4)), "y": np.ones((8, 4))}, "equally many samples"),
    ("own.py:bare", {"x": np.full((9, 4), "a")}, "which is no number"),
    ("own.py:mapping", {}, "in the order that the model takes"),
    ("own.py:half", {"x": np.ones((9, 4))}, "give it in float32"),
    ("own.py:constant", {"x": np.eye(9, 4)}, "outputs do not depend on the inputs"),
    ("own.py:folded", {"x": np.eye(9, 4)}, "every output must have an entry for each"),
    ("own.py:bare", {"x": np.full((9, 4), np.nan)}, "not a number (NaN)"),
    ("own.py:bare", {"x": np.ones((9, 4)), "labels": np.ones(9)}, "the model takes input"),
    ("folder", {}, "neither config.json (Hugging Face) nor saved_model.pb"),
    ("own.txt", {}, "is no model that is known"),
    ("cut.pt2", {}, "is damaged"),
    ("old.h5", {}, "keras.models.load_model('old.h5').save('old.keras')"),
    ("old.weights.h5", {}, "holds weights and no model"),
]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return why each is refused, by its card or when it is built or called: torch is imported
    twice for all of them."""
    folder = of_all_processes(tmp_path_factory, "unusable")
    with once(folder) as is_first:
        if is_first:
            (folder / "refusals").write_text(json.dumps(_refusals(folder)))
    found: list[str] = json.loads((folder / "refusals").read_text())
    return found


def _refusals(folder: Path) -> list[str]:
    (folder / "own.py").write_text(OWN)
    (folder / "own.txt").write_text("nothing")
    (folder / "cut.pt2").write_bytes(b"PK and no more")
    for name in ("old.h5", "old.weights.h5"):
        (folder / name).write_bytes(b"\x89HDF\r\n\x1a\n")
    (folder / "folder").mkdir()
    refs = []
    for i, (model, inputs, _) in enumerate(UNUSABLE):
        name, _, function = model.partition(":")
        recorded = str(samples(folder / f"in{i}.npz", **inputs)) if inputs else ""
        refs.append(ModelRef(name, str(folder / name), function=function, inputs=recorded))
    cards = read_cards(refs)
    built = [i for i, card in enumerate(cards) if not card.fault]
    asked = [Asked(refs[i], (cards[i].reference_batch,)) for i in built]
    replies = dict(zip(built, described(asked, "torch", folder), strict=True))
    return [card.fault or replies[i].error for i, card in enumerate(cards)]


@slow
@needs("torch")
@pytest.mark.parametrize("index", range(len(UNUSABLE)), ids=[words for *_, words in UNUSABLE])
def test_what_cannot_be_used_is_one_line(refusals: list[str], index: int) -> None:
    assert "\n" not in refusals[index]
    assert UNUSABLE[index][-1] in refusals[index]


@needs("torch")
def test_a_parameter_that_a_function_does_not_take_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert "takes no parameter 'width'" in refused(f"{tmp_path / 'own.py'}:bare@width=3")


@slow
@needs("torch")
@pytest.mark.usefixtures("forked")
def test_recorded_inputs_are_taken_as_they_are_and_part_of_the_identity(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    rows = np.random.default_rng(0).standard_normal((20, 4))
    first = samples(tmp_path / "first.npz", x=rows)
    second = samples(tmp_path / "second.npz", x=rows + 1)
    model = f"{tmp_path / 'own.py'}:bare"
    ref, card = find_model(model, MODELS, inputs=first)
    assert card.source_sha256 != find_model(model, MODELS, inputs=second)[1].source_sha256
    assert describe_model(ref, "torch", 0).input_shapes == ((4,),)


TEXTS = """
from tuner.worker.gallery import Mask, Model, Tokens
MODEL = Model("t", "", "other", (Tokens((4, 8), 50), Mask()), 4, (4,), n_classes=32)
def torch():
    from torch import nn
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 32)
        def forward(self, tokens, mask):
            return (self.table(tokens) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return Pooled()
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file in a folder of its own, where its reference is made once."""
    folder = of_all_processes(tmp_path_factory, "texts")
    with once(folder) as is_first:
        if is_first:
            (folder / "texts.py").write_text(TEXTS)
    return folder / "texts.py"


@slow
@needs("torch")
@pytest.mark.parametrize("settings", [{}, {"torch.compile.mode": "default"}])
def test_a_round_holds_a_batch_of_every_length(
    tmp_path: Path, texts: Path, compiled: Path, settings: dict[str, str]
) -> None:
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(compiled)}
    with Launched(
        tmp_path, "torch", settings, str(texts), cache, references=texts.parent
    ) as launched:
        assert launched.card.n_shapes == 2
        read_back = launched.read_back()
        for knob, value in settings.items():
            assert read_back[knob].observed == value, read_back[knob]
        assert launched.measured().slice.calls % 2 == 0
        checked = launched.checked(reduced=True)
        assert isinstance(checked, Checked), checked
        assert checked.check.n_inputs == 2 * 64
        assert checked.check.top1_agreement == 1.0


TRAINED = """
from tuner.worker.gallery import Features, Model
MODEL = Model("t", "", "other", (Features(6),), 4, (4,))
def torch():
    from torch import nn
    model = nn.Sequential(nn.BatchNorm1d(6), nn.BatchNorm1d(6))
    model[0].running_mean.fill_(0.5)
    return model
"""


@slow
@needs("torch")
def test_batch_norms_that_were_trained_keep_their_statistics(tmp_path: Path) -> None:
    (tmp_path / "trained.py").write_text(TRAINED)
    launched = Launched(tmp_path, "torch", {}, model=str(tmp_path / "trained.py"))
    with launched, np.load(launched.reference) as reference:
        conditioned = {k for k in reference if k.startswith("tensor:")}
        assert conditioned == {f"tensor:1.{n}" for n in ("weight", "running_mean", "running_var")}


DRAWN = """
import random
import numpy as np
from torch import nn, tensor
TABLE = nn.Linear(4, 3)
def drawn():
    TABLE.bias.data += tensor(np.random.normal(size=3) + random.random())
    return TABLE, np.ones((4, 4), np.float32)
"""


@slow
@needs("torch")
def test_weights_that_a_file_draws_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Whose workers are started: forks have the state of random numbers in common."""
    (tmp_path / "drawn.py").write_text(DRAWN)
    model = f"{tmp_path / 'drawn.py'}:drawn"
    with Launched(tmp_path, "", {}, model=model) as launched:
        launched.prepare()
        assert isinstance(launched.checked(), Checked)


TRAINED_KERAS = """
from tuner.worker.gallery import Features, Model
MODEL = Model("t", "", "other", (Features(6),), 4, (4,))
def tensorflow():
    from tensorflow.keras import Sequential, layers
    def part(name):
        return Sequential([layers.Input((6,)), layers.BatchNormalization(name="norm")], name=name)
    model = Sequential([layers.Input((6,)), part("a"), layers.Dropout(0.5), part("b"), part("c")])
    model.layers[0].layers[0].moving_mean.assign([0.5] * 6)
    return model
"""


@slow
@needs("tensorflow")
def test_conditioning_leaves_trained_norms_of_keras_alone_and_tells_equal_names_apart(
    tmp_path: Path,
) -> None:
    path, kept = tmp_path / "trained.py", tmp_path / "reference.npz"
    path.write_text(TRAINED_KERAS)
    asked = Asked(ModelRef("trained", str(path)), (4,), reference=str(kept))
    (reply,) = described([asked], "tensorflow", tmp_path)
    assert len(reply.checks) == 1, reply.error
    with np.load(kept) as reference:
        conditioned = {k for k in reference if k.endswith("moving_mean")}
        assert conditioned == {f"tensor:{i}:norm.moving_mean" for i in (1, 2)}


ROUNDED = """
def accuracy(outputs, inputs):
    assert len(outputs[0]) == len(inputs[0]) > 4
    return -(outputs[0].view("uint32") % (1 << 16) == 0).mean()  # how many were bf16
"""


@slow
@needs("torch")
@pytest.mark.parametrize(("loss", "is_good"), [(0.5, False), (2.0, True)])
def test_a_users_accuracy_decides_over_reduced_precision(
    tmp_path: Path, loss: float, is_good: bool
) -> None:
    text = TEXTS.replace("n_classes=32", f"accuracy_loss={loss}").replace("(4, 8)", "(8,)")
    (tmp_path / "judged.py").write_text(text + ROUNDED)
    settings = {"torch.dtype": "bf16"}
    with Launched(tmp_path, "torch", settings, model=str(tmp_path / "judged.py")) as launched:
        launched.prepare()
        found = launched.checked(reduced=True)
        if is_good:
            assert isinstance(found, Checked)
            assert found.check.accuracy == -1.0
            assert found.check.default_accuracy == pytest.approx(0, abs=0.1)
        else:
            assert isinstance(found, Failed)
            assert "allowed is a loss of 0.5" in found.reason
