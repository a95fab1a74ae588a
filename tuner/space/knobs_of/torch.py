"""What PyTorch alone has."""

from __future__ import annotations

from tuner.record.load import INFERENCE, TRAINING
from tuner.record.numerics import Level
from tuner.space.knob import (
    AT_LEAST_0,
    AT_LEAST_1,
    BOOLEAN,
    Applies,
    Knob,
    model,
    one_of,
    variable,
    written,
)

RANKS = "torch.ranks"
LOADER_WORKERS, LOADER_PREFETCH = "torch.loader.workers", "torch.loader.prefetch_factor"
KNOBS = (
    variable(
        "ATEN_CPU_CAPABILITY",
        "newest instructions of PyTorch's own kernels",
        marker="ATEN_CPU_CAPABILITY",
        domain=written(
            r"default|avx2|avx512\w*|amx\w*|vsx|zvector|sve\d*", "default, or a name such as avx2"
        ),
    ),
    variable(
        "LRU_CACHE_CAPACITY",
        "how many oneDNN kernels PyTorch keeps",
        marker="LRU_CACHE_CAPACITY",
        domain=AT_LEAST_0,
    ),
    variable(
        "TORCH_MKLDNN_MATMUL_MIN_DIM",
        "smallest matrix that goes to oneDNN (Arm)",
        marker="TORCH_MKLDNN_MATMUL_MIN_DIM",
        domain=AT_LEAST_0,
    ),
    Knob(
        "torch.interop_threads",
        Applies.PROCESS,
        "inter-op threads of PyTorch",
        how="torch.set_num_interop_threads({value})",
        domain=AT_LEAST_1,
    ),
    Knob(
        "torch.flush_denormal",
        Applies.PROCESS,
        "numbers below 1e-38 count as zero",
        how="torch.set_flush_denormal({value})",
        domain=BOOLEAN,
    ),
    model(
        "torch.mkldnn",
        "oneDNN's kernels in PyTorch",
        "torch.backends.mkldnn.set_flags({value})",
        domain=BOOLEAN,
    ),
    model(
        "torch.weights",
        "weights in a mapped file, whose pages instances share",
        "{value}: model.load_state_dict(torch.load('weights.pt', mmap=True), assign=True), of a "
        "file that all instances read",
        domain=one_of("private", "mapped"),
        modes=(INFERENCE,),
    ),
    model(
        "torch.memory_format",
        "layout of image tensors",
        "model.to(memory_format=torch.{value}), and the inputs likewise",
        domain=one_of("contiguous", "channels_last"),
    ),
    model(
        "torch.compile.mode",
        "torch.compile, by TorchInductor",
        "model = torch.compile(model); to answer, it is called under torch.inference_mode(), and "
        "the mode freezing needs torch._inductor.config.freezing = True before the first call",
        domain=one_of("off", "default", "freezing"),
        compiles=True,
    ),
    model(
        "torch.compile.max_autotune",
        "TorchInductor's choice of product kernels by trial",
        "torch._inductor.config.max_autotune = {value} before the first call",
        domain=BOOLEAN,
        measures_itself=True,
    ),
    model(
        "torch.compile.cpp_wrapper",
        "TorchInductor's calls in C++",
        "torch._inductor.config.cpp_wrapper = {value} before the first call",
        domain=BOOLEAN,
    ),
    model(
        "torch.jit.mode",
        "TorchScript, traced and frozen",
        "model = torch.jit.freeze(torch.jit.trace(model, inputs)); mode optimize needs "
        "torch.jit.optimize_for_inference(model) around it (here: {value})",
        domain=one_of("off", "freeze", "optimize"),
        modes=(INFERENCE,),
    ),
    model(
        "torch.export.mode",
        "exported and compiled ahead of time",
        "{value}: torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs)), "
        "loaded with torch._inductor.aoti_load_package",
        domain=one_of("off", "aot_inductor"),
        compiles=True,
        modes=(INFERENCE,),
    ),
    model(
        "torch.compile.cuda_graphs",
        "TorchInductor's kernels launched together, as a CUDA graph",
        "torch._inductor.config.triton.cudagraphs = {value} before the first call; "
        "torch.compile(model, mode='reduce-overhead') does the same",
        domain=BOOLEAN,
    ),
    model(
        "torch.cudnn.benchmark",
        "cuDNN's choice of convolution kernels by trial",
        "torch.backends.cudnn.benchmark = {value}",
        domain=BOOLEAN,
        measures_itself=True,
    ),
    model(
        "torch.float32_matmul_precision",
        "precision of fp32 matrix products on a GPU: high is TF32",
        "torch.set_float32_matmul_precision('{value}')",
        level=Level.REDUCED,
        domain=one_of("highest", "high"),
    ),
    variable(
        "NVIDIA_TF32_OVERRIDE",
        "TF32 in every product of NVIDIA's libraries, or in none",
        domain=one_of("0", "1"),
        level=Level.REDUCED,
    ),
    variable(
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TF32 in matrix products of a GPU",
        domain=one_of("0", "1"),
        level=Level.REDUCED,
    ),
    variable(
        "PYTORCH_ALLOC_CONF",
        "how PyTorch takes memory of a GPU",
        domain=written(r"[a-z_]+:[^\s]+", "such as expandable_segments:True"),
    ),
    model(
        "torch.autocast",
        "automatic mixed precision of PyTorch",
        "with torch.autocast(device, dtype=torch.bfloat16 or torch.float16): model(x) "
        "(here: {value})",
        level=Level.REDUCED,
        domain=one_of("off", "bf16", "fp16"),
    ),
    model(
        "torch.dtype",
        "weights and inputs converted",
        "model.to(torch.bfloat16 or torch.float16), and floating-point inputs likewise (here: "
        "{value})",
        level=Level.REDUCED,
        domain=one_of("fp32", "bf16", "fp16"),
    ),
    model(
        "torch.optimizer",
        "how the optimizer updates the parameters",
        "torch.optim.AdamW(model.parameters(), foreach=True or fused=True), and other optimizers "
        "likewise (here: {value})",
        domain=one_of("for_loop", "foreach", "fused"),
        modes=(TRAINING,),
    ),
    Knob(
        "torch.accumulation",
        Applies.MODEL,
        "parts of a batch whose gradients are added before an update",
        how="for part in batch.chunk({value}): (loss(part) / {value}).backward(); then "
        "optimizer.step()",
        domain=AT_LEAST_1,
        modes=(TRAINING,),
        by_program=True,
    ),
    Knob(
        RANKS,
        Applies.MODEL,
        "processes that train the model, each on its part of the batch",
        how="torchrun --nproc-per-node {value} train.py, which trains "
        "DistributedDataParallel(model) on 1/{value} of each batch (backend gloo)",
        domain=AT_LEAST_1,
        modes=(TRAINING,),
        by_program=True,
    ),
    Knob(
        LOADER_WORKERS,
        Applies.MODEL,
        "processes that make batches while the model learns",
        how="DataLoader(..., num_workers={value}, persistent_workers={value} > 0)",
        domain=AT_LEAST_0,
        modes=(TRAINING,),
        by_program=True,
    ),
    Knob(
        LOADER_PREFETCH,
        Applies.MODEL,
        "batches that each of these processes makes ahead",
        how="DataLoader(..., prefetch_factor={value})",
        domain=AT_LEAST_1,
        modes=(TRAINING,),
        by_program=True,
    ),
    model(
        "torch.fp32_precision",
        "precision of fp32 products in oneDNN, set in the program",
        "torch.backends.mkldnn.matmul.fp32_precision = torch.backends.mkldnn.conv.fp32_precision "
        "= '{value}'",
        level=Level.REDUCED,
        domain=one_of("none", "ieee", "tf32", "bf16"),
    ),
)
