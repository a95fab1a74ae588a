"""Models of the transformers library: a configuration alone, or a local folder with weights.

Nothing is downloaded and no code of the folder's is executed. Weights are read from safetensors;
pickled ones (pytorch_model.bin) only if the user allows it. transformers 5 has PyTorch models only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.workload import ModelRef
from tuner.worker.gallery import pickles
from tuner.worker.gallery.recorded import recorded_inputs
from tuner.worker.gallery.statement import (
    Accuracy,
    Image,
    Input,
    Mask,
    Model,
    StatesNoLearning,
    Tokens,
)
from tuner.worker.gallery.unstated import BATCHES

_LENGTH = 128
"""Tokens of a generated text; the published BERT measurements for CPUs use it."""


class HuggingFace(StatesNoLearning):
    """A config.json, or the folder that it lies in."""

    form: str = "code"
    takes_parameters = True
    accuracy: Accuracy | None = None
    variants: tuple[str, ...] = ()
    parameters: Mapping[str, Value] = MappingProxyType({})

    def __init__(self, ref: ModelRef) -> None:
        self._ref = ref
        path = Path(ref.path)
        self._folder = path if path.is_dir() else path.parent
        self._has_weights = path.is_dir() and self._weights_are_there()
        self._config: Any = None
        unknown = [key for key, _ in ref.parameters if key != "length"]
        if unknown:
            raise UsageError(f"model {ref.name} takes no parameter {unknown[0]!r}; it takes length")

    def _weights_are_there(self) -> bool:
        if list(self._folder.glob("*.safetensors")):
            return True
        pickled = sorted(p.name for p in self._folder.glob("pytorch_model*.bin"))
        if pickled and not self._ref.allows_pickle:
            raise UsageError(
                f"the weights in {self._folder} are pickles ({pickled[0]}): loading them can "
                "execute anything. Save them as safetensors (save_pretrained does); or, if you "
                "trust them: --allow-pickle"
            )
        return bool(pickled)

    def frameworks(self) -> tuple[str, ...]:
        """Return PyTorch."""
        return ("torch",)

    def _read_config(self) -> Any:
        if self._config is None:
            try:
                from transformers import AutoConfig
            except ImportError as error:
                raise UsageError(
                    "models of Hugging Face need transformers: pip install transformers"
                ) from error
            try:
                config = AutoConfig.from_pretrained(
                    self._ref.path, local_files_only=True, trust_remote_code=False
                )
            except (ValueError, OSError, KeyError) as error:
                raise UsageError(
                    f"transformers cannot read {self._ref.path}: {str(error).splitlines()[0]}"
                ) from error
            if hasattr(config, "use_cache"):
                config.use_cache = False  # outputs are tensors, one forward pass is measured
            self._config = config
        return self._config

    def build(self, framework: str) -> Any:
        """Make the model, with the folder's weights or random ones."""
        import torch
        import transformers
        from torch import Tensor, nn

        config = self._read_config()
        named = (config.architectures or [""])[0]
        kind: Any = getattr(transformers, named, None)
        if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
            kind = transformers.AutoModel
        if self._has_weights:
            with pickles.refused(str(self._folder), but_allowed=self._ref.allows_pickle):
                model = kind.from_pretrained(
                    self._folder,
                    config=config,
                    local_files_only=True,
                    trust_remote_code=False,
                    dtype=torch.float32,  # the default's precision; bf16 is one of the settings
                    use_safetensors=None if self._ref.allows_pickle else True,
                )
        elif kind is transformers.AutoModel:
            model = kind.from_config(config, trust_remote_code=False, dtype=torch.float32)
        else:
            model = kind(config)
        names = [name for name, _ in self._inputs()]

        class ByPosition(nn.Module):
            """Takes tensors in order and returns tensors: what exporters and tracers take."""

            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
                given = dict(zip(names, tensors, strict=True))
                outputs = self.model(**given, return_dict=False)
                return tuple(part for part in outputs if isinstance(part, Tensor))

        return ByPosition()

    def _inputs(self) -> list[tuple[str, Input]]:
        """Return the inputs by name: recorded ones, else a text or an image as configured."""
        if self._ref.inputs:
            return [(r.name, r) for r in recorded_inputs(self._ref.inputs)]
        config = self._read_config()
        if self._ref.parameters and not hasattr(config, "vocab_size"):
            raise UsageError(f"model {self._ref.name} takes no parameters: it reads no text")
        size = getattr(config, "image_size", None)
        if isinstance(size, int):
            return [("pixel_values", Image(size, size, int(config.num_channels)))]
        if hasattr(config, "num_channels") and not hasattr(config, "vocab_size"):
            return [("pixel_values", Image(224, 224, int(config.num_channels)))]
        if isinstance(getattr(config, "vocab_size", None), int):
            longest = int(getattr(config, "max_position_embeddings", None) or 1 << 20)
            length = dict(self._ref.parameters).get("length", min(_LENGTH, longest))
            if not isinstance(length, int) or not 0 < length <= longest:
                raise UsageError(
                    f"length={length} is invalid here; texts have 1 to {longest} tokens"
                )
            text = Tokens((length,), config.vocab_size)
            return [("input_ids", text), ("attention_mask", Mask())]
        raise UsageError(
            f"{self._ref.path} configures neither a text nor an image model: record inputs by the "
            "names that its forward() takes and name the file: --inputs FILE.npz"
        )

    def state(self) -> Model:
        """Return the configuration's value."""
        config = self._read_config()
        named = (config.architectures or [type(config).__name__])[0]
        has_attention = hasattr(config, "num_attention_heads") or hasattr(config, "n_head")
        kind = "transformer" if has_attention else "cnn"
        return Model(
            title=named,
            task="",
            kind=kind if has_attention or hasattr(config, "num_channels") else "other",
            inputs=tuple(spec for _, spec in self._inputs()),
            reference_batch=BATCHES[0],
            batches=BATCHES,
            n_classes=int(config.num_labels) if named.endswith("Classification") else None,
        )
