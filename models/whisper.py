"""Whisper: whisper-tiny reads 30 seconds of speech and says the first token of its transcript.

Radford et al., arXiv:2212.04356: an encoder of 1,500 places and a decoder, 4 layers of width 384
each; MLPerf Inference has the large one. A call encodes the spectrogram (80 bands x 3,000 frames)
and scores the token after a prompt of 4. From transformers and from keras_hub, with random weights.
"""

from typing import Any

from tuner.worker.gallery import Model, Tokens, Values

VARIANTS = ("tiny",)
VOCABULARY, BANDS, PROMPT, TARGETS = 51_865, 80, 4, 448
WIDTH, LAYERS, HEADS, INNER = 384, 4, 6, 1536


def model(variant: str = "tiny", frames: int = 3000) -> Model:
    """Return the statement for spectrograms of so many frames, of which two make a place."""
    places = frames // 2
    attention, layer = 4 * WIDTH * WIDTH, 2 * WIDTH * INNER
    encoder = 3 * BANDS * WIDTH * frames + 3 * WIDTH * WIDTH * places
    encoder += places * LAYERS * (attention + layer + 2 * places * WIDTH)
    cross = 2 * WIDTH * WIDTH * (PROMPT + places) + 2 * PROMPT * places * WIDTH
    decoder = LAYERS * (PROMPT * (attention + layer + 2 * PROMPT * WIDTH) + cross)
    return Model(
        title=f"Whisper {variant}",
        task="speech recognition",
        family="speech",
        kind="transformer",
        inputs=(Values((BANDS, frames)), Tokens((PROMPT,), VOCABULARY)),
        reference_batch=1,
        batches=(1, 4),
        n_classes=VOCABULARY,
        n_parameters=37_184_640 + places * WIDTH,
        macs=encoder + decoder + WIDTH * VOCABULARY,
        widths={"torch": 2.0, "tensorflow": 1.5},
        follows="Radford et al. 2022",
        systems=("MLPerf Inference",),
        small={"frames": 200},
        differs=f"PyTorch has the encoder's fixed places as parameters: {places * WIDTH:,} more",
    )


def torch(frames: int = 3000) -> Any:
    """Return a torch.nn.Module of (spectrogram, prompt): scores of the next token."""
    from torch import Tensor, nn
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(max_source_positions=frames // 2)

    class Recognizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = WhisperForConditionalGeneration(config)

        def forward(self, spectrogram: Tensor, prompt: Tensor) -> Tensor:
            heard = self.model.model(
                input_features=spectrogram, decoder_input_ids=prompt, use_cache=False
            )
            scores: Tensor = self.model.proj_out(heard.last_hidden_state[:, -1])
            return scores

    return Recognizer()


def tensorflow(frames: int = 3000) -> Any:
    """Return a keras.Model of [spectrogram, prompt]: scores of the next token."""
    from keras_hub.models import WhisperBackbone
    from tensorflow.keras import Input, Model, ops

    spectrogram = Input((BANDS, frames), name="spectrogram")
    prompt = Input((PROMPT,), dtype="int32", name="prompt")
    backbone = WhisperBackbone(
        VOCABULARY,
        LAYERS,
        HEADS,
        WIDTH,
        INNER,
        num_mels=BANDS,
        max_encoder_sequence_length=frames,
        max_decoder_sequence_length=TARGETS,
    )
    heard = backbone(
        {
            "encoder_features": ops.transpose(spectrogram, (0, 2, 1)),
            "decoder_token_ids": prompt,
            "decoder_padding_mask": ops.ones_like(prompt),
        }
    )
    last = heard["decoder_sequence_output"][:, -1]
    return Model([spectrogram, prompt], backbone.token_embedding(last, reverse=True))
