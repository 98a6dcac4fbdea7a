"""Every type of transformers' models has a row here: with random weights, the same function there and back."""

import inspect
import re

import pytest
import torch
import transformers
from test_deberta import made_up, outputs
from test_import import import_hf
from test_rotary_types import write
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from fairseq_posenc.huggingface import source_models
from fairseq_posenc.huggingface.conversion import to_transformers
from fairseq_posenc.huggingface.model_types import MODEL_TYPES
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.state_dict import CLASSIFICATION, ENCODER, LANGUAGE_MODEL, POSITIONS

SIZES = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=4, intermediate_size=24, max_position_embeddings=50)
DEBERTA = dict(
    relative_attention=True, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
    position_biased_input=False, legacy=False,
)  # fmt: skip
IRREGULAR = ["sliding_attention", *["full_attention"] * 2, "sliding_attention"]
OURS = "fairseq_posenc"
LLAMA = dict(rope_parameters={"rope_type": "default", "rope_theta": 250000.0})
LAYERS = "rope(layout=half, window=4) | {0} | {0}".format("rope(base=160000.0, layout=half)")
TYPES = [  # the type, options of a small model, its positions here, and the type that it is exported to
    ("albert", dict(embedding_size=12), "absolute", "albert"),
    ("bert", {}, "absolute", "roberta"),
    ("deberta-v2", DEBERTA, "deberta", "deberta-v2"),
    ("electra", dict(embedding_size=12), "absolute", OURS),
    ("esm", dict(position_embedding_type="rotary", emb_layer_norm_before=True, token_dropout=False), "rope", "esm"),
    ("eurobert", LLAMA, "rope", "eurobert"),
    ("gte", {}, "rope", OURS),
    ("gte", dict(type_vocab_size=0, hidden_dropout_prob=0.0), "rope", OURS),
    ("jina_embeddings_v3", {}, "rope", "jina_embeddings_v3"),
    ("modernbert", dict(local_attention=128), "modernbert", "modernbert"),
    ("modernbert", dict(layer_types=IRREGULAR, local_attention=8), LAYERS, OURS),  # which transformers 4 would not read
    ("mpnet", dict(pad_token_id=1), "absolute+t5", "mpnet"),
    ("nomic_bert", {}, "rope", "nomic_bert"),
    ("roberta", {}, "absolute", "roberta"),
    ("roberta-prelayernorm", {}, "absolute", "roberta-prelayernorm"),
    ("roformer", dict(hidden_act="relu"), "rope", OURS),  # with GELU, it would become Jina Embeddings v3
    ("ultrabert", dict(sliding_window=4), "rope(layout=half, window=4) | " * 2 + "rope(base=2560000.0, layout=half)", OURS),
]
NOT_WRITTEN = {
    "deberta": "the projections of positions are its own, and keys have no bias",
    "esmc": "proteins: LayerNorm of queries and keys, and scaled residuals",
    "funnel": "pools the sequence between blocks",
    "modernvbert": "reads pictures; its text model is modernbert",
    "neomme": "reads pictures; norms of queries and keys, gates of attention",
    "ultravbert": "reads pictures; its text model is ultrabert",
}
"""Types with rotations or biases that are not imported, and why."""
WORDS = re.compile(r"rotary|alibi|relative_(attention_bias|position)|rel_embeddings", re.IGNORECASE)


@pytest.mark.parametrize("head", ["MaskedLM", pytest.param("SequenceClassification", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("model_type", "options", "positions", "exported_type"), TYPES)
def test_every_type_is_the_same_function_there_and_back(model_type, options, positions, exported_type, head, tmp_path, capsys):
    """Imported and exported again, on padded batches up to the greatest length; the parameters are the same after both."""
    kind = MODEL_TYPES[model_type]
    if not hasattr(transformers, f"{kind.prefix}Config"):
        pytest.skip("this release of transformers does not have it")
    head = head if head in kind.heads else "Model"
    ending = head if head == "Model" else f"For{head}"
    theirs = write(tmp_path / "source", kind.prefix, ending, num_labels=3, **SIZES, **options)
    state, printed = import_hf(capsys, tmp_path / "source", tmp_path / "out" / "model.pt")
    checkpoint = Checkpoint(tmp_path / "out" / "model.pt", tmp_path / "out")
    assert checkpoint.config.positions == positions
    assert ("new, at random (seed 1): the language model's head" in printed) == (head != "MaskedLM")
    exported = to_transformers(checkpoint).model
    assert exported.config.model_type == exported_type or head != "MaskedLM"
    order = source_models.read(str(tmp_path / "source")).vocabulary.order
    for length in (2, 17, checkpoint.config.max_positions):
        tokens = made_up(len(order), length)
        expected = outputs(theirs, order[tokens], theirs.config.pad_token_id)
        if head == "Model":
            found = [checkpoint.encoder()(tokens).last_hidden_state, outputs(exported.base_model, tokens, 1)]
        else:
            found = [checkpoint.logits(tokens), outputs(exported, tokens, 1)]
        expected = expected[..., order] if head == "MaskedLM" else expected
        real = slice(None) if head == "SequenceClassification" else tokens.ne(1)
        for ours in found:
            torch.testing.assert_close(ours[real], expected[real], atol=2e-5, rtol=1e-5)
    again, others = MODEL_TYPES[exported.config.model_type].to_fairseq(exported.state_dict(), exported.config)
    state = {name.replace(".sentence_classification_head.", "."): value for name, value in state.items()}
    assert others == []
    assert all(name.startswith(LANGUAGE_MODEL) for name in state.keys() ^ again.keys())
    assert [name for name, value in again.items() if not torch.equal(value, state[name])] == []


def test_every_type_has_a_row_and_names_that_fairseq_has():
    kinds = {*MODEL_TYPES.values()} - {MODEL_TYPES[OURS]}
    assert {kind.name for kind in kinds} <= {model_type for model_type, *_ in TYPES}
    for kind in kinds:
        names = [name for ours, _ in kind.keys for name in ([ours] if isinstance(ours, str) else ours)]
        assert all(name.startswith((ENCODER, POSITIONS, LANGUAGE_MODEL, CLASSIFICATION)) for name in names)


def test_types_with_rotations_or_biases_are_imported_or_listed():
    """A release of transformers with a new one fails here: it needs a file in ``huggingface/types``, or a reason above."""
    found = set()
    for model_type, name in MODEL_FOR_MASKED_LM_MAPPING_NAMES.items():
        model_class = getattr(transformers, name)
        config = model_class.config_class()
        texts = {model_type, getattr(getattr(config, "text_config", None), "model_type", model_type)}
        modules = [inspect.getmodule(getattr(transformers, MODEL_FOR_MASKED_LM_MAPPING_NAMES[text])) for text in texts]
        if any(WORDS.search(inspect.getsource(module)) for module in modules):
            found.add(model_type)
    assert {"modernbert", "roformer", "deberta-v2"} <= found
    assert found <= MODEL_TYPES.keys() | NOT_WRITTEN.keys()
    assert not MODEL_TYPES.keys() & NOT_WRITTEN.keys()
