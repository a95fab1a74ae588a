"""A decoder of Llama's shape: llama-prefill reads a prompt, llama-decode makes one more token.

Touvron et al., arXiv:2302.13971, with grouped-query attention, at the size of SmolLM2-135M
(arXiv:2502.02737): 30 layers, 9 heads on 3 pairs of keys and values, width 576, 134,515,008
parameters; MLPerf Inference has the same shape at 8 and 70 billion. From transformers and from
keras_hub, with random weights. Both return the scores of the next token and the keys and values;
decode takes those of `length` earlier tokens. A call of prefill takes the time to the first token;
a call of decode makes one token per sample.
"""

from typing import Any

from tuner.worker.gallery import Model, Tokens, Values

VARIANTS = ("prefill", "decode")
VOCABULARY = 49_152
WIDTH, HEADS, GROUPS, INNER, EPSILON, WAVELENGTH = 576, 9, 3, 1536, 1e-5, 100_000.0
HEAD = WIDTH // HEADS


def model(variant: str = "prefill", layers: int = 30, length: int = 128) -> Model:
    """Return the statement: the prompt's tokens, or one token and the past's keys and values."""
    is_decode = variant == "decode"
    n_new = 1 if is_decode else length
    attended = length + 1 if is_decode else length
    projections = 2 * WIDTH * WIDTH + 2 * WIDTH * GROUPS * HEAD
    per_token = layers * (projections + 3 * WIDTH * INNER + 2 * attended * WIDTH)
    past = Values((layers, 2, GROUPS, length, HEAD))
    return Model(
        title=f"Llama 135M, {variant}",
        task="text generation",
        family="decoder",
        kind="transformer",
        inputs=(Tokens((1,), VOCABULARY), past) if is_decode else (Tokens((length,), VOCABULARY),),
        reference_batch=1,
        batches=(1, 4),
        n_classes=VOCABULARY,
        n_parameters=VOCABULARY * WIDTH
        + layers * (projections + 3 * WIDTH * INNER + 2 * WIDTH)
        + WIDTH,
        macs=n_new * per_token + WIDTH * VOCABULARY,
        widths={"torch": 1.0, "tensorflow": 1.0},
        item="token" if is_decode else "prompt",
        follows="SmolLM2-135M; MLPerf Inference's Llama at a size for CPUs",
        systems=("MLPerf Inference",),
        small={"layers": 2, "length": 16},
    )


def torch(variant: str = "prefill", layers: int = 30) -> Any:
    """Return a torch.nn.Module: scores (batch, vocabulary), then keys and values of each layer."""
    from torch import Tensor, arange, nn
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        rms_norm_eps=EPSILON,
        rope_theta=WAVELENGTH,
        tie_word_embeddings=True,
    )

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LlamaForCausalLM(config)

        def forward(self, tokens: Tensor, past: Tensor | None = None) -> tuple[Tensor, ...]:
            cache = DynamicCache()
            first = 0
            if past is not None:
                first = past.shape[-2]
                for layer in range(layers):
                    cache.update(past[:, layer, 0], past[:, layer, 1], layer)
            positions = arange(first, first + tokens.shape[1], device=tokens.device)[None]
            made = self.model(
                tokens,
                past_key_values=cache,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
            )
            held = made.past_key_values.layers
            return (made.logits[:, -1], *(part for h in held for part in (h.keys, h.values)))

    class Prefill(Generator):
        def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            return super().forward(tokens)

    return Generator() if variant == "decode" else Prefill()


def tensorflow(variant: str = "prefill", layers: int = 30, length: int = 128) -> Any:
    """Return a keras.Model: scores (batch, vocabulary), then all keys and values in one tensor."""
    from keras_hub.models import LlamaBackbone, LlamaCausalLM
    from tensorflow.keras import Input, Model, ops

    is_decode = variant == "decode"
    backbone = LlamaBackbone(
        VOCABULARY,
        layers,
        HEADS,
        WIDTH,
        INNER,
        GROUPS,
        rope_max_wavelength=WAVELENGTH,
        layer_norm_epsilon=EPSILON,
        tie_word_embeddings=True,
    )
    generator = LlamaCausalLM(backbone, preprocessor=None)

    class Step(Model):
        """One call with the cache; keras_hub keeps (batch, layer, 2, position, group, width)."""

        def __init__(self) -> None:
            super().__init__()
            self.generator = generator

        def call(self, inputs: Any) -> Any:
            tokens, past = inputs if is_decode else (inputs, None)
            tokens = ops.cast(tokens, "int32")
            n_new = 1 if is_decode else length
            room = ops.zeros(
                (ops.shape(tokens)[0], layers, 2, n_new, GROUPS, HEAD), dtype=self.compute_dtype
            )
            cache = room
            if past is not None:
                ordered = ops.transpose(ops.cast(past, self.compute_dtype), (0, 1, 2, 4, 3, 5))
                cache = ops.concatenate([ordered, room], axis=3)
            scores, _, cache = self.generator.call_with_cache(
                tokens, cache, length if is_decode else 0
            )
            return scores[:, -1], cache

    step = Step()
    tokens = Input((1 if is_decode else length,), dtype="int32")
    past = Input((layers, 2, GROUPS, length, HEAD))
    step([tokens, past] if is_decode else tokens)
    return step
