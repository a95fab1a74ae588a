"""Generates text: only the calls without a cache run in the form that was built."""

# settings: {"torch.jit.mode": "freeze"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

torch.manual_seed(0)
config = GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2,
                    bos_token_id=1, eos_token_id=2, pad_token_id=0)  # fmt: skip
model = GPT2LMHeadModel(config).eval()
prompt = torch.randint(3, 40, (2, 5))
asked = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 6}
expected = model.generate(prompt, do_sample=False, **asked)
beams = model.generate(prompt, num_beams=2, do_sample=False, **asked)
with torch.no_grad():
    logits = model(prompt, use_cache=False).logits

model = tuned.prepare(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with torch.no_grad():
        torch.testing.assert_close(model(prompt, use_cache=False).logits, logits)
    assert torch.equal(model.generate(prompt, do_sample=False, **asked), expected)
    assert torch.equal(model.generate(prompt, num_beams=2, do_sample=False, **asked), beams)
said = [str(w.message) for w in caught if "in the model as it was given" in str(w.message)]
assert len(said) == 1, said
assert "DynamicCache" in said[0]
