"""Only precision is set: any call is tuned, with a cache or without, and nothing is warned of."""

# settings: {"torch.dtype": "bf16"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

torch.manual_seed(0)
config = GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2,
                    bos_token_id=1, eos_token_id=2, pad_token_id=0)  # fmt: skip
model = tuned.prepare(GPT2LMHeadModel(config))
prompt = torch.randint(3, 40, (2, 5))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    longer = model.generate(
        prompt, do_sample=False, max_new_tokens=4, attention_mask=torch.ones_like(prompt)
    )
    found = model(prompt)
    embedded = model(inputs_embeds=torch.randn(2, 5, 16))
assert longer.shape[1] > 5
assert found.logits.dtype is torch.bfloat16
assert embedded.logits.dtype is torch.bfloat16
assert found.past_key_values.get_seq_length() == 5
assert not [w for w in caught if "in the model as it was given" in str(w.message)]
