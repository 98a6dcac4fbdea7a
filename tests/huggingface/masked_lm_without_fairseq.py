"""Run where fairseq is not installed, in an empty folder: a masked language model, its folder, and its encoder again."""

import json
import shutil
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerFast

from fairseq_posenc import load_encoder, load_vocabulary
from fairseq_posenc.huggingface.auto import PosencConfig
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM
from fairseq_posenc.huggingface.vocabularies import read_vocabulary

ROLES = dict(bos="<s>", cls="<s>", pad="<pad>", eos="</s>", sep="</s>", unk="<unk>", mask="<mask>")
NAMES = ["<s>", "<pad>", "</s>", "<unk>", *["the", "red", "ball", "is", "round", "and", "a", "dog", "runs"], "<mask>"]
library = Tokenizer(models.WordLevel({name: i for i, name in enumerate(NAMES)}, unk_token="<unk>"))
library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
library.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, **{f"{role}_token": name for role, name in ROLES.items()})
sizes = dict(vocab_size=len(NAMES), layers=2, dim=32, ffn_dim=64, heads=4, max_positions=32)
model = PosencForMaskedLM(PosencConfig(positions="tisa", **sizes))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

tokens = torch.tensor(tokenizer(["the red ball is round", "a dog runs and the ball"], padding=True)["input_ids"])
attended, losses = tokens.ne(1).long(), []
masked, labels = tokens.clone(), torch.full_like(tokens, -100)
masked[:, 2], labels[:, 2] = NAMES.index("<mask>"), tokens[:, 2]
for _ in range(30):
    loss = model(masked, attention_mask=attended, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses

model.eval().save_pretrained("folder")
tokenizer.save_pretrained("folder")
assert torch.equal(AutoModelForMaskedLM.from_pretrained("folder").eval()(tokens).logits, model(tokens).logits)
expected = model.base_model(tokens, attention_mask=attended).last_hidden_state
torch.testing.assert_close(load_encoder("folder")(tokens).last_hidden_state, expected)

shutil.copytree("folder", "pickled")
Path("pickled", "model.safetensors").unlink()
torch.save(model.state_dict(), "pickled/pytorch_model.bin")
torch.testing.assert_close(load_encoder("pickled")(tokens).last_hidden_state, expected)

read_vocabulary("folder", len(NAMES)).write(Path("vocabulary"))
assert load_vocabulary("vocabulary").encode("the red dog").ids.tolist() == [NAMES.index(word) for word in ("the", "red", "dog")]
pair = {"sentence_good": "the red ball is round", "sentence_bad": "ball red the is round", "UID": "order"}
Path("pairs.jsonl").write_text("\n".join([json.dumps(pair)] * 3), "utf-8")
Path("text.txt").write_text("the red ball is round and a dog runs\n" * 120, "utf-8")
assert "fairseq" not in sys.modules
