"""A workload: model x framework x scenario x input shape, and the content of a model file."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Value
from tuner.record.headers import Headers
from tuner.record.load import INFERENCE, SCENARIOS, Scenario

CPU, CUDA = "cpu", "cuda"
"""The devices on which a model may compute, by the names that frameworks have for them."""
DEVICES = (CPU, CUDA)
PROGRAM, SERVICE = "program", "service"
"""Forms of what is started from outside: programs that time themselves, and servers."""
OF_PROGRAMS = (PROGRAM, SERVICE)
"""Of these only the launch can be tuned."""
VARIANT = "variant"
"""The parameter of a model file that the end of a name stands for: bert-large."""
LAST_BATCH_DIM = 3
"""The last dimension of inputs that can be the batch: (height, width, channels, batch)."""
N_CHECK_SAME = 32
N_CHECK_REDUCED = 128
"""Enough for 64 with a clear class: on resnet50 in bf16, 6 in 10 have one."""
N_CHECK_ACCURACY = 512
"""At most: of recorded inputs no more are taken than there are."""


class ModelRef(msgspec.Struct, frozen=True):
    """The source of a model: a file of the gallery (or a user's), with parameters."""

    name: str
    path: str
    parameters: tuple[tuple[str, Value], ...] = ()
    function: str = ""
    """The function of a Python file that returns the model; empty if the file states a MODEL."""
    inputs: str = ""
    """A NumPy file with recorded inputs; empty if they are generated."""
    allows_pickle: bool = False
    """Whether the user trusts the file: loading pickles can execute anything."""
    command: tuple[str, ...] = ()
    """A program in the place of a model, run in the folder `path`."""
    url: str = ""
    """The address at which the program answers the requests in `inputs`, with {port}; empty for a
    program that times itself."""
    batch: int | None = None
    """The only batch that the model is called with; None for those that it states."""
    batch_dim: int | None = None
    """Which dimension of its inputs is the batch; None for the one that it states, or the first."""
    headers: Headers = ()
    """The headers of requests, as typed: with names of variables in place of secrets."""

    def label(self) -> str:
        """Name it as it is typed: NAME or NAME-VARIANT, @key=value,..."""
        given = dict(self.parameters)
        name = f"{self.name}-{given.pop(VARIANT)}" if VARIANT in given else self.name
        pairs = ",".join(f"{key}={value}" for key, value in given.items())
        return f"{name}@{pairs}" if pairs else name


class ModelCard(msgspec.Struct, frozen=True):
    """What is known about a model before a study; read in a child process only."""

    name: str
    title: str
    task: str
    kind: str
    """cnn, transformer, recommendation, recurrent, mlp or other: what vendors' formulas ask
    about."""
    frameworks: tuple[str, ...]
    reference_batch: int
    batches: tuple[int, ...]
    n_classes: int | None
    source_sha256: str
    form: str = "code"
    """code (built by Python), script, export or saved: what it can be made into; program, service.
    """
    tolerance: float | None = None
    """Drift allowed to reduced precision, if the user set it."""
    accuracy_loss: float | None = None
    """By how much the user's accuracy function may fall; None if there is none."""
    n_shapes: int = 1
    """Batches of different shapes that make one timed round."""
    n_parameters: int = 0
    """As the file states it; 0 if it does not. So the next two."""
    macs: int = 0
    widths: dict[str, float] = {}
    family: str = "other"
    """cnn, detection, encoder, decoder, ...: more narrowly than `kind` (worker/gallery)."""
    item: str = "sample"
    """The user's word for one sample: sample, prompt, token."""
    follows: str = ""
    """The reference that its sizes come from."""
    systems: tuple[str, ...] = ()
    """The benchmark systems that measure this model, at whatever size."""
    server_bound_s: float | None = None
    """MLPerf Inference's bound on a server's latency."""
    small: dict[str, Value] = {}
    """Parameters of the small variant that tests build."""
    differs: str = ""
    """How the frameworks' models differ; empty if they are the same, or there is one only."""
    inputs: tuple[str, ...] = ()
    """Each input in words: Tokens lengths=(128,) vocabulary=30522."""
    parameters: dict[str, Value] = {}
    """The parameters of the file's functions, NAME@key=value, with their defaults."""
    variants: tuple[str, ...] = ()
    """The variants of the file: NAME-VARIANT is NAME@variant=VARIANT."""
    batch_dim: int | None = None
    """The dimension of its inputs that is the batch, if the user names it and the file does not."""
    fault: str = ""
    """Why the file cannot be used; empty if it can."""

    def n_check_inputs(self, *, changes_numerics: bool) -> int:
        """Return how many inputs the outputs are compared on."""
        if not changes_numerics:
            return N_CHECK_SAME
        if self.accuracy_loss is not None:
            return N_CHECK_ACCURACY
        return N_CHECK_SAME if self.n_classes is None else N_CHECK_REDUCED

    def n_reference_inputs(self) -> int:
        """Return how many outputs of the default a reference holds: enough for either check."""
        return max(self.n_check_inputs(changes_numerics=each) for each in (False, True))


class Parameter(msgspec.Struct, frozen=True):
    """A trainable tensor of a model."""

    name: str
    shape: tuple[int, ...]
    n_bytes: int


class OwnSetting(msgspec.Struct, frozen=True):
    """A setting in a model's own code, which overrides the one that the program is started with."""

    knob: str
    where: str
    """FILE:LINE."""
    what: str
    """As it stands there: torch.set_num_threads(1), OMP_NUM_THREADS=1 in os.environ."""
    holds: bool = True
    """Whether it overrides the launch wherever it stands; a variable does if it comes first."""
    in_force: bool = True
    """False for pools that a worker makes before the model: they are measured without it."""
    instead: int | None = None
    """The framework's own value; None if that could not be tried."""
    call_s: float = 0.0
    """Seconds of a call with the model as it is, and with `instead`; 0 if that was not tried."""
    call_without_s: float = 0.0


class StepMemory(msgspec.Struct, frozen=True):
    """The bytes that a step of training of the default keeps, by what they hold."""

    batch: int
    weights: int
    """Parameters and buffers."""
    gradients: int
    optimizer: int
    """The optimizer's state."""
    activations: int | None
    """All that the forward pass keeps for the backward pass; None where nothing shows it."""


class ModelFacts(msgspec.Struct, frozen=True, tag="facts"):
    """What only the built model tells: measured in a child process, never in the tool itself."""

    n_parameters: int
    input_shapes: tuple[tuple[int, ...], ...]
    """Per input, without the batch dimension."""
    versions: dict[str, str]
    effective_defaults: dict[str, Value]
    """Per knob, the value in force when nothing is set: shows which settings are equal."""
    unread: dict[str, str]
    """Variables that nothing in the process reads, each with the reason."""
    graph_width: float
    """Heavy operators that can run side by side, on average (tuner/worker/graph.py); 0 if it is not
    known."""
    graph_fault: str
    """Why the width is not known; empty if it is."""
    import_s: float
    build_s: float
    call_s: float
    """Seconds of one warm call of the default at the reference batch: for time estimates only."""
    input_types: tuple[str, ...] = ()
    """Per input, as NumPy names it: float32, int64."""
    parameter_bytes: int = 0
    parameters_sha256: str = ""
    """Over names and shapes of the trainable tensors, in their order: models of one architecture
    share it, whatever their weights. Empty if there are none."""
    parameter_ranks: tuple[int, ...] = ()
    """The numbers of dimensions of trainable tensors, each once; empty if unknown."""
    macs: int | None = None
    """Multiply-accumulates of a call, per sample; None if they were not counted."""
    macs_by: str = ""
    """Who counted them."""
    own_settings: tuple[OwnSetting, ...] = ()
    """The tuned settings that the model's own code sets."""
    learns: str = ""
    """In training, the loss and the optimizer, in words."""
    step_memory: StepMemory | None = None
    """None if the model does not learn."""
    has_loader: bool = False
    """Whether steps of training take their batches from a loader of the user's."""
    has_target: bool = False
    """Whether the model's file states a quality target of training."""
    silence: str = ""
    """Why a server does not answer without settings; empty if it does."""
    answers_with: dict[str, Value] = {}
    """Settings under which such a server answers: its outputs are the reference then."""


class Workload(msgspec.Struct, frozen=True):
    """The subject of tuning: every field changes the results and is part of the identity."""

    model: ModelRef
    framework: str
    scenario: str
    """A name of record/load.py."""
    card: ModelCard
    seed: int = 0
    device: str = CPU
    mode: str = INFERENCE
    callers: int = 1
    """How many call at the same time, threads of one process."""

    def means(self) -> Scenario:
        """Return what its scenario means."""
        return SCENARIOS[self.scenario]

    def label(self) -> str:
        """Name it as folders and reports do."""
        load = self.scenario if self.callers == 1 else f"{self.scenario}-{self.callers}"
        return f"{self.model.label()}-{self.framework}-{load}"
