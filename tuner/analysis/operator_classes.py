"""Classes of operators, by the names that profilers give them.

Names are those of PyTorch's dispatcher and TorchInductor, of TensorFlow's executor, and of XLA's
instructions. The first pattern that matches decides.
"""

from __future__ import annotations

import re
from functools import cache

from tuner.record.launch import REST
from tuner.record.why import OperatorClass

_PATTERNS: tuple[tuple[OperatorClass, str], ...] = (
    (
        OperatorClass.OVERHEAD,
        r"^torch-compiled region|compiledfxgraph|^torchdynamo|^autograd::|^optimizer\.zero_grad"
        r"|^pregraph bytecode|^aotdispatch",
    ),
    (OperatorClass.FUSED, r"^triton_|(^|[_%])fusion|^xlalaunch|^_xlarun|^call$"),
    (OperatorClass.UPDATE, r"^optimizer\.step|_fused_(adam|sgd|adagrad)|_foreach_|resourceapply"),
    (OperatorClass.ATTENTION, r"attention|fused_?mha|fmha|flash_fwd|flash_bwd"),
    (OperatorClass.RECURRENT, r"lstm|gru|rnn"),
    (OperatorClass.COPY, r"_reorder_"),
    (OperatorClass.OTHER, r"all_?reduce|all_?gather|broadcast_?send|collective"),
    (OperatorClass.ELEMENTWISE, r"resize|linear\dd|interpolate|upsample"),
    (OperatorClass.CONVOLUTION, r"conv(?!ert)|deconv|fprop|dgrad|wgrad|implicit_gemm"),
    (OperatorClass.LOOKUP, r"embedding|gather|index_?select|aten::index(_|$)|aten::take|scatter"),
    (
        OperatorClass.PRODUCT,
        r"matmul|addmm|baddbmm|(^|:)b?mm(_|$)|linear|einsum|(^|:)dot|gemm|addmv",
    ),
    (
        OperatorClass.COPY,
        r"copy|clone|contiguous|reorder|transpose|permute|(^|:)(to|_to|cat|stack|fill_|zero_)(_|$|\.)"
        r"|concat|pack|cast|convert|reshape|resize_(_|$)|empty|zeros|ones|pad|slice|strided|expand|view|tile"
        r"|identity|unsqueeze|squeeze|aten::t$|as_strided|split|chunk|aten::select|narrow|flatten|detach"
        r"|nchwto|nhwcto|memcpy|memset|readvariable|assign|broadcast|const|to_mkldnn|to_dense|_to_",
    ),
    (
        OperatorClass.ELEMENTWISE,
        r"elementwise|norm|relu|gelu|silu|swish|sigmoid|tanh|softmax|softplus|erf|exp|log|sqrt|pow|square|neg|abs"
        r"|add|sub|mul|div|max|min|mean|sum|pool|bias|dropout|where|mask|clamp|clip|compare|equal|greater"
        r"|less|logical|select_?v2|reduce|cumsum|arg|sort|topk|random|bernoulli|loss|nll|rsqrt|erfinv|lerp"
        r"|sign|floor|round|threshold|hardtanh|elu|mish|prelu|maximum|minimum|(^|:)(std|var|any|all)(_|$)|lrn|resample"
        r"|upsample|resize_bilinear|interpolate",
    ),
)


_KERNEL = re.compile(r"(?:cpp|triton_[a-z]+)_fused_(.+?)(?:_\d+)?$")
"""A kernel that TorchInductor generated is named after the operators that it fuses."""
_FUSION = re.compile(r"(.+)_fusion(?:\.\d+)?$")
"""So is one of XLA, if they are few."""
_CALLED = re.compile(r"_?convolution(_pointwise)?(_default)?")
"""In such a name: what is called from a library after the kernel has laid out its inputs."""
_IN_KERNELS = (
    OperatorClass.ATTENTION,
    OperatorClass.PRODUCT,
    OperatorClass.LOOKUP,
    OperatorClass.ELEMENTWISE,
    OperatorClass.COPY,
)
"""The classes of fused operators, the one that takes most of the time first."""


@cache
def class_of(name: str) -> OperatorClass:
    """Return the class of an operator by its name."""
    lowered = name.lower()
    if name == REST:
        return OperatorClass.OTHER
    if (kernel := _KERNEL.search(lowered)) is not None:
        return _of_fused(_CALLED.sub("", kernel[1])) or OperatorClass.COPY
    if (kernel := _FUSION.match(lowered)) is not None:
        return _of_fused(kernel[1]) or OperatorClass.FUSED
    return next((each for each, p in _PATTERNS if re.search(p, lowered)), OperatorClass.OTHER)


def _of_fused(names: str) -> OperatorClass | None:
    """Return the most expensive class of the operators in a kernel's name; None for none."""
    found = (c for c in _IN_KERNELS for each, p in _PATTERNS if each is c and re.search(p, names))
    return next(found, None)
