"""A workload: model x framework x scenario x input shape, and what a model file states."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Value
from tuner.record.headers import Headers
from tuner.record.load import SCENARIOS, Scenario

INFERENCE = "inference"
"""The mode in which a model answers; of the modes, the only one so far."""
CPU, CUDA = "cpu", "cuda"
"""The devices on which a model may compute, by the names that frameworks have for them."""
DEVICES = (CPU, CUDA)
PROGRAM, SERVICE = "program", "service"
"""Forms of what is started from outside: what times itself, and what answers requests."""
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
    """Where a model comes from: a file of the gallery (or a user's), with parameters."""

    name: str
    path: str
    parameters: tuple[tuple[str, Value], ...] = ()
    function: str = ""
    """Which function of a Python file returns the model; empty where the file states a MODEL."""
    inputs: str = ""
    """A NumPy file with recorded inputs; empty where they are generated."""
    allows_pickle: bool = False
    """Whether the user trusts the file: loading pickles can execute anything."""
    command: tuple[str, ...] = ()
    """A program in the place of a model, run in the folder `path`."""
    url: str = ""
    """Where the program answers the requests in `inputs`, {port} in it; empty for one that times
    itself."""
    batch: int | None = None
    """The only batch that the model is called with; None for those that it states."""
    batch_dim: int | None = None
    """Which dimension of its inputs is the batch; None for the one that it states, or the first."""
    headers: Headers = ()
    """What requests bring beside their content, as typed: no secret, but its variable's name."""

    def label(self) -> str:
        """Name it as it is typed: NAME or NAME-VARIANT, @key=value,..."""
        given = dict(self.parameters)
        name = f"{self.name}-{given.pop(VARIANT)}" if VARIANT in given else self.name
        pairs = ",".join(f"{key}={value}" for key, value in given.items())
        return f"{name}@{pairs}" if pairs else name


class ModelCard(msgspec.Struct, frozen=True):
    """What is known of a model before a study: read in a child process, never in the tool."""

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
    """Drift that reduced precision may have, where the user says so."""
    accuracy_loss: float | None = None
    """By how much the user's accuracy function may fall; None where there is no such function."""
    n_shapes: int = 1
    """Batches of different shapes that make one timed round."""
    n_parameters: int = 0
    """As the file states it; 0 if it does not. So the next two."""
    macs: int = 0
    widths: dict[str, float] = {}
    family: str = "other"
    """cnn, detection, encoder, decoder, ...: more narrowly than `kind` (worker/gallery)."""
    item: str = "sample"
    """What one sample is to users: sample, prompt, token."""
    follows: str = ""
    """The reference whose sizes it has."""
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
    """What the file's functions take as NAME@key=value, with the defaults."""
    variants: tuple[str, ...] = ()
    """Those that the file has: NAME-VARIANT is NAME@variant=VARIANT."""
    batch_dim: int | None = None
    """Which dimension of its inputs is the batch, where the user says so and the file does not."""
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
    """What a model's own code sets, overriding what the program is started with."""

    knob: str
    where: str
    """FILE:LINE."""
    what: str
    """As it stands there: torch.set_num_threads(1), OMP_NUM_THREADS=1 in os.environ."""
    holds: bool = True
    """Whether it overrides the launch wherever it stands; a variable does if it comes first."""
    in_force: bool = True
    """False for pools that a worker makes before the model: what is measured is without it."""
    instead: int | None = None
    """What the framework had by itself; None where that could not be tried."""
    call_s: float = 0.0
    """Seconds of a call as the model is, and with `instead`; 0 where that was not tried."""
    call_without_s: float = 0.0


class ModelFacts(msgspec.Struct, frozen=True, tag="facts"):
    """What only the built model tells: measured in a child process, never in the tool itself."""

    n_parameters: int
    input_shapes: tuple[tuple[int, ...], ...]
    """Per input, without the batch dimension."""
    versions: dict[str, str]
    effective_defaults: dict[str, Value]
    """Per knob, what is in force when nothing is set: how the tool knows that two are one."""
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
    share it, whatever their weights. Empty where there are none."""
    parameter_ranks: tuple[int, ...] = ()
    """How many dimensions trainable tensors have, each number once; empty where it is not known."""
    macs: int | None = None
    """Multiply-accumulates of a call, per sample; None where nothing counts them."""
    macs_by: str = ""
    """Who counted them."""
    own_settings: tuple[OwnSetting, ...] = ()
    """What the model's own code sets of what is tuned."""
    silence: str = ""
    """Why a server does not answer with nothing set; empty where it does."""
    answers_with: dict[str, Value] = {}
    """Settings under which such a server answers: its outputs are the reference then."""


class Workload(msgspec.Struct, frozen=True):
    """What is tuned: every field changes the results, so all of them are part of the identity."""

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
