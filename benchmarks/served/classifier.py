"""A text classifier: tokenised words, a transformer of four layers, FastAPI.

uvicorn classifier:app --port 8000
"""

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

TEXT = "the a of to in is it was for on with this film good bad great poor story acting [UNK]"
WORDS = TEXT.split()
LENGTH, WIDTH = 64, 256

tokenizer = Tokenizer(
    models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
)
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.enable_padding(length=LENGTH)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.0)
model = nn.Sequential(
    nn.Embedding(len(WORDS), WIDTH),
    nn.TransformerEncoder(layer, 4),
    nn.Flatten(),
    nn.Linear(LENGTH * WIDTH, 2),
).eval()
app = FastAPI()


class Review(BaseModel):
    """What is posted."""

    text: str


@app.post("/predict")
def predict(review: Review) -> dict[str, list[float]]:
    """Answer with the probabilities of two classes."""
    ids = torch.tensor([tokenizer.encode(review.text).ids[:LENGTH]])
    with torch.inference_mode():
        return {"scores": model(ids)[0].softmax(-1).tolist()}
