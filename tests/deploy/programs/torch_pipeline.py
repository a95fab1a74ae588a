"""Serves a model of transformers by its pipeline."""

# settings: {"torch.jit.mode": "freeze"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

words = ["[PAD]", "[UNK]", "good", "bad", "film", "a"]
tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
)
config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1,
                    num_attention_heads=2, intermediate_size=32, num_labels=2)  # fmt: skip
torch.manual_seed(0)
model = BertForSequenceClassification(config).eval()
texts = ["a good film", "bad", "a bad bad film", "good"]
expected = pipeline("text-classification", model=model, tokenizer=tokenizer)(texts)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fast = tuned.prepare(model)
    classify = pipeline("text-classification", model=fast, tokenizer=tokenizer)
    found = classify(texts)
    again = classify(texts, batch_size=2, padding="max_length", max_length=6)
assert not [w for w in caught if "in the model as it was given" in str(w.message)], caught
assert [each["label"] for each in found] == [each["label"] for each in expected]
for one, other in zip([*found, *again], [*expected, *expected], strict=True):
    assert abs(one["score"] - other["score"]) < 1e-4
