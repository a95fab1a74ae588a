"""Operators of both frameworks, and of their compilers, by class."""

from __future__ import annotations

import pytest

from tuner.analysis.operator_classes import class_of
from tuner.record.launch import REST
from tuner.record.why import OperatorClass

CLASSES = {
    OperatorClass.CONVOLUTION: (
        "aten::mkldnn_convolution", "mkldnn::_convolution_pointwise", "Conv2D", "_FusedConv2D",
        "sm80_xmma_fprop_implicit_gemm_f32f32",
        "aten::convolution_backward", "DepthwiseConv2dNative", "_MklNativeConv2DBackpropFilter",
        "convolution",
    ),
    OperatorClass.PRODUCT: (
        "aten::addmm", "aten::mm", "aten::bmm", "mkldnn::_linear_pointwise", "MatMul",
        "_FusedMatMul", "BatchMatMulV2", "Einsum", "dot", "mkl::_mkl_linear", "aten::linear",
        "cpp_fused_addmm_relu_7",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", "ampere_sgemm_128x64_tn",
    ),
    OperatorClass.ATTENTION: (
        "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::scaled_dot_product_attention",
        "pytorch_flash::flash_fwd_kernel", "fmha_cutlassF_f32_aligned_64x64_rf_sm80",
    ),
    OperatorClass.RECURRENT: (
        "aten::lstm", "aten::mkldnn_rnn_layer", "aten::_thnn_fused_lstm_cell",
    ),
    OperatorClass.ELEMENTWISE: (
        "aten::native_batch_norm", "aten::native_layer_norm", "aten::relu_", "aten::clamp_min_",
        "aten::add_", "aten::gelu", "aten::_softmax", "aten::max_pool2d_with_indices", "aten::mean",
        "FusedBatchNormV3", "Relu", "BiasAdd", "AddV2", "MaxPool", "Mean", "Softmax", "Tanh", "Mul",
        "add", "Rsqrt", "SquaredDifference", "SelectV2", "graph_0_cpp_fused_add_relu_3",
        "cpp_fused_native_layer_norm_view_1", "cpp_fused_convolution_relu_2",
        "at::native::vectorized_elementwise_kernel",
        "triton_poi_fused_add_relu_3", "tanh_multiply_fusion",
        "aten::upsample_bilinear2d", "ResizeBilinear", "aten::std",
    ),
    OperatorClass.COPY: (
        "aten::copy_", "aten::clone", "aten::contiguous", "aten::to", "aten::_to_copy", "aten::cat",
        "aten::permute", "aten::t", "aten::empty", "Transpose", "Cast", "ConcatV2", "Reshape",
        "cpp_fused_convolution_0", "cpp_fused_clone_permute_4",
        "cudnn::nchwToNhwcKernel", "Memcpy HtoD",
       
        "bitcast_dynamic-update-slice_fusion", "Identity", "ReadVariableOp",
        "mkldnn::_reorder_convolution_weight", "Pad", "StridedSlice",
    ),
    OperatorClass.LOOKUP: (
        "aten::embedding", "aten::_embedding_bag", "aten::index_select", "aten::gather", "GatherV2",
        "ResourceGather", "aten::index", "gather_bitcast_fusion.1",
    ),
    OperatorClass.UPDATE: (
        "Optimizer.step#AdamW.step", "aten::_fused_adamw_", "aten::_foreach_add_",
        "ResourceApplyAdamWithAmsgrad",
    ),
    OperatorClass.FUSED: ("fusion", "input_fusion"),
    OperatorClass.OVERHEAD: (
        "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph  ##", "TorchDynamo Cache Lookup",
    ),
    OperatorClass.OTHER: ("something_new", "CollectiveAllReduce", REST),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"), [(name, each) for each, names in CLASSES.items() for name in names]
)
def test_an_operator_has_its_class(name: str, expected: OperatorClass) -> None:
    assert class_of(name) is expected
