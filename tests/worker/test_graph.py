"""The width of graphs, by the published algorithm."""

import contextlib
from pathlib import Path

import pytest

from tests.wants import needs
from tests.worker.workers import TINY, torch_imported
from tuner.galleries import MODELS
from tuner.launchers.describe import describe_model, find_model
from tuner.worker.graph import Node, average_width


def test_a_chain_is_one_wide() -> None:
    nodes = [Node("a", "Conv2D", ()), Node("r", "Relu", ("a",)), Node("b", "MatMul", ("r",))]
    assert average_width(nodes) == 1.0


def test_heavy_operators_side_by_side_count() -> None:
    """Three convolutions between two: five in three layers, whatever lies between them."""
    nodes = [
        Node("in", "Placeholder", ()),
        Node("first", "Conv2D", ("in",)),
        *(Node(f"branch{i}", "Conv2D", ("first",)) for i in range(3)),
        Node("sum", "AddN", ("branch0", "branch1", "branch2")),
        Node("last", "aten.addmm.default", ("sum",)),
    ]
    assert average_width(nodes) == pytest.approx(5 / 3)


def test_products_do_not_count_beside_embeddings() -> None:
    nodes = [
        Node("left", "aten.embedding.default", ()),
        Node("right", "aten.embedding.default", ()),
        Node("mlp", "aten.linear.default", ("left", "right")),
    ]
    assert average_width(nodes) == 2.0


def test_a_gather_of_an_embedding_layer_is_one() -> None:
    """As Keras 3 writes it; a gather of anything else is not."""
    nodes = [
        Node("model/embedding_1/GatherV2", "GatherV2", ()),
        Node("model/embedding_2/GatherV2", "GatherV2", ()),
        Node("model/dense/MatMul", "MatMul", ("model/embedding_1/GatherV2",)),
    ]
    assert average_width(nodes) == 2.0
    assert average_width([Node("gather", "GatherV2", ()), Node("m", "MatMul", ())]) == 1.0


@pytest.mark.parametrize(
    ("kind", "is_heavy"),
    [
        ("aten.conv2d.default", True),
        ("aten.convolution.default", True),
        ("aten.conv_transpose2d.input", True),
        ("DepthwiseConv2dNative", True),
        ("aten.baddbmm.default", True),
        ("aten.linear.default", True),
        ("BatchMatMulV2", True),
        ("aten.scaled_dot_product_attention.default", True),
        ("aten.upsample_bilinear2d.vec", False),
        ("prims.convert_element_type.default", False),
        ("aten.relu.default", False),
    ],
)
def test_heavy_operators_are_told_by_their_kind(kind: str, is_heavy: bool) -> None:
    assert average_width([Node("x", kind, ())]) == float(is_heavy)


def test_without_heavy_operators_the_width_is_unknown() -> None:
    assert average_width([Node("x", "Relu", ())]) == 0.0


def test_branching_graphs_take_linear_time() -> None:
    """2^200 paths: the recursion as published would not end."""
    nodes = [Node("n0", "Conv2D", ())]
    for i in range(200):
        before = nodes[-1].name
        nodes += [
            Node(f"l{i}", "Conv2D", (before,)),
            Node(f"r{i}", "Conv2D", (before,)),
            Node(f"n{i + 1}", "Conv2D", (f"l{i}", f"r{i}")),
        ]
    assert average_width(nodes) == pytest.approx(601 / 401)


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=needs(name)) for name in ("torch", "tensorflow")]
)
def test_real_graphs_are_read(framework: str) -> None:
    """Two convolutions and a product in a row."""
    ref, _ = find_model(TINY, MODELS)
    with torch_imported() if framework == "torch" else contextlib.nullcontext():
        facts = describe_model(ref, framework, 0)
    assert (facts.graph_width, facts.graph_fault) == (1.0, "")
    assert facts.input_types == ("float32",)
    assert facts.parameter_bytes == 4 * facts.n_parameters
    assert len(facts.parameters_sha256) == 64
    products = 32 * 32 * 32 * 3 * 9 + 32 * 32 * 32 * 32 * 9 + 16 * 32 * 64
    counted = (products, "torch.utils.flop_counter") if framework == "torch" else (None, "")
    assert (facts.macs, facts.macs_by) == counted


_ENCODER = """
import numpy as np
def tagger():
    from torch import nn
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), np.ones((4, 3, 4), np.float32)
"""


@pytest.mark.slow
@needs("torch")
@pytest.mark.usefixtures("forked")
def test_work_that_the_counter_does_not_see_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "tagger.py"
    path.write_text(_ENCODER)
    ref, _ = find_model(f"{path}:tagger", MODELS)
    facts = describe_model(ref, "torch", 0)
    assert (facts.macs, facts.macs_by) == (None, "")
    assert facts.n_parameters == 4 * (4 + 1) * 4 + 2 * 4 * 8 + 8 + 4 + 2 * 2 * 4


@pytest.mark.slow
@needs("torch")
@pytest.mark.usefixtures("forked")
def test_a_graph_that_cannot_be_exported_is_said_to_be_unknown(tmp_path: Path) -> None:
    path = tmp_path / "branching.py"
    path.write_text(
        """
from tuner.worker.gallery import Features, Model

MODEL = Model(title="t", task="t", kind="mlp", inputs=(Features(4),), reference_batch=2,
              batches=(2,))

def torch():
    from torch import nn

    class Branching(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    return Branching()
"""
    )
    ref, _ = find_model(str(path), MODELS)
    facts = describe_model(ref, "torch", 0)
    assert facts.graph_width == 0.0
    assert facts.graph_fault
