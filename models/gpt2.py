"""GPT-2, 124 M parameters: gpt2-prefill reads a prompt, gpt2-decode makes one more token.

Radford et al. 2019: 12 layers, 12 heads, width 768. From transformers and from keras_hub, with
random weights. Both return the scores of the next token and the keys and values; decode takes
those of `length` earlier tokens.
"""

from typing import Any

from tuner.worker.gallery import Model, Tokens, Values

VOCABULARY = 50_257
WIDTH, HEADS, INNER, POSITIONS = 768, 12, 3072, 1024
HEAD = WIDTH // HEADS
VARIANTS = ("prefill", "decode")


def model(variant: str = "prefill", layers: int = 12, length: int = 64) -> Model:
    """Return the statement: the prompt's tokens, or one token and the past's keys and values."""
    is_decode = variant == "decode"
    n_new = 1 if is_decode else length
    attended = length + 1 if is_decode else length
    per_token = layers * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER + 2 * attended * WIDTH)
    past = Values((layers, 2, HEADS, length, HEAD))
    return Model(
        title=f"GPT-2 124M, {variant}",
        task="text generation",
        family="decoder",
        kind="transformer",
        inputs=(Tokens((1,), VOCABULARY), past) if is_decode else (Tokens((length,), VOCABULARY),),
        reference_batch=4,
        batches=(1, 4),
        n_classes=VOCABULARY,
        n_parameters=(VOCABULARY + POSITIONS) * WIDTH
        + layers * (4 * (WIDTH + 1) * WIDTH + (WIDTH + 1) * INNER + (INNER + 1) * WIDTH + 4 * WIDTH)
        + 2 * WIDTH,
        macs=n_new * per_token + WIDTH * VOCABULARY,
        widths={"torch": 2.0, "tensorflow": 1.0},
        item="token" if is_decode else "prompt",
        follows="Radford et al. 2019",
        small={"layers": 2, "length": 16},
    )


def torch(variant: str = "prefill", layers: int = 12) -> Any:
    """Return a torch.nn.Module: scores (batch, vocabulary), then keys and values of each layer."""
    from torch import Tensor, arange, nn
    from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

    is_decode = variant == "decode"

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(n_layer=layers))

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

    return Generator() if is_decode else Prefill()


def tensorflow(variant: str = "prefill", layers: int = 12, length: int = 64) -> Any:
    """Return a keras.Model: scores (batch, vocabulary), then all keys and values in one tensor."""
    from keras_hub.models import GPT2Backbone, GPT2CausalLM
    from tensorflow.keras import Input, Model, ops

    is_decode = variant == "decode"
    backbone = GPT2Backbone(VOCABULARY, layers, HEADS, WIDTH, INNER, max_sequence_length=POSITIONS)
    generator = GPT2CausalLM(backbone, preprocessor=None)

    class Step(Model):
        """One call with the cache; keras_hub keeps (batch, layer, 2, position, head, width)."""

        def __init__(self) -> None:
            super().__init__()
            self.generator = generator

        def call(self, inputs: Any) -> Any:
            tokens, past = inputs if is_decode else (inputs, None)
            tokens = ops.cast(tokens, "int32")
            first = length if is_decode else 0
            n_new = 1 if is_decode else length
            room = ops.zeros(
                (ops.shape(tokens)[0], layers, 2, n_new, HEADS, HEAD), dtype=self.compute_dtype
            )
            if past is None:
                cache = room
            else:
                ordered = ops.transpose(ops.cast(past, self.compute_dtype), (0, 1, 2, 4, 3, 5))
                cache = ops.concatenate([ordered, room], axis=3)
            scores, _, cache = self.generator.call_with_cache(tokens, cache, first)
            return scores[:, -1], cache

    step = Step()
    tokens = Input((1 if is_decode else length,), dtype="int32")
    past = Input((layers, 2, HEADS, length, HEAD))
    step([tokens, past] if is_decode else tokens)
    return step
