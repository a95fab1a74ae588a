"""Classifies texts with a model of transformers, called as its documentation shows."""

# settings: {"torch.jit.mode": "freeze"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from transformers import BertConfig, BertForSequenceClassification  # noqa: E402
from transformers.modeling_outputs import SequenceClassifierOutput  # noqa: E402

config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=32, num_labels=3)  # fmt: skip
torch.manual_seed(0)
original = BertForSequenceClassification(config).eval()
tokens = {
    "input_ids": torch.randint(1, 50, (2, 7)),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]),
}
with torch.no_grad():
    expected = original(**tokens, output_hidden_states=True)

model = tuned.prepare(original)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with torch.no_grad():
        plain = model(**tokens)
        found = model(**tokens, output_hidden_states=True)
        (logits,) = model(tokens["input_ids"], tokens["attention_mask"], return_dict=False)
        fewer = model(input_ids=tokens["input_ids"][:1])
assert not [w for w in caught if "in the model as it was given" in str(w.message)], caught
assert isinstance(plain, SequenceClassifierOutput)
assert plain.loss is None
assert list(plain) == ["logits"]
assert len(found.hidden_states) == 3
for each in (plain.logits, found["logits"], found[0], logits):
    torch.testing.assert_close(each, expected.logits, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(found.hidden_states[1], expected.hidden_states[1], rtol=1e-4, atol=1e-4)
assert fewer.logits.shape == (1, 3)
assert found.logits.argmax(-1).tolist() == expected.logits.argmax(-1).tolist()
assert isinstance(model, BertForSequenceClassification)
assert model.config.num_labels == 3
assert model.device.type == "cpu"
assert model.dtype is torch.float32
assert sum(p.numel() for p in model.parameters()) == original.num_parameters()
assert model.eval() is model
assert model.bert.embeddings is original.bert.embeddings
