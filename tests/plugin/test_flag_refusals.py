"""Flags that do not go together are refused before training, and the message names them."""

import copy
import functools

import pytest
from omegaconf import OmegaConf, open_dict

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.batches.masked_lm_static import StaticMaskedLmLoss
from fairseq_posenc.plugin.models.building import parse
from fairseq_posenc.plugin.run import refusals

PLAIN = "--task masked_lm --criterion masked_lm --arch roberta_tisa --batch-size 8 --optimizer adam --cpu"
STATIC = PLAIN.replace("masked_lm", "masked_lm_static")
ORDER = PLAIN.replace("masked_lm", "masked_lm_sentence_order")
ORDER_OF_BLOCKS = f"{ORDER} --sample-break-mode complete_doc"
FUSED, MUON, STABLE = (PLAIN.replace("adam", name) for name in ("fused_adam", "muon", "stable_adamw"))
FEWER_MASKS = [f"{flags} --mask-prob-end 0.1 --mask-prob-updates 5" for flags in (PLAIN, STATIC, ORDER_OF_BLOCKS)]
DECAY = f"{PLAIN} --lr-scheduler polynomial_decay --total-num-update 5"


@functools.cache
def parsed(flags):
    return parse([".", *flags.split()])


def configured(flags, values):
    cfg = copy.deepcopy(parsed(flags))
    with open_dict(cfg):
        for path, value in values.items():
            OmegaConf.update(cfg, path, value, merge=False)
    return cfg


@pytest.mark.parametrize(
    ("flags", "zero", "values", "message"),
    [
        (MUON, 0, {"common.fp16": True}, "--fp16 without --fp16-no-flatten-grads and --optimizer muon"),
        (MUON, 0, {"common.memory_efficient_bf16": True}, "--memory-efficient-bf16 and --optimizer muon"),
        (STABLE, 0, {"common.fp16": True}, "--fp16 without --fp16-no-flatten-grads and --optimizer stable_adamw"),
        (FUSED, 0, {"common.fp16": True}, "--fp16 and --optimizer fused_adam"),
        (FUSED, 0, {"common.memory_efficient_bf16": True}, "--memory-efficient-bf16 and"),
        (FUSED, 0, {"ema.store_ema": True}, "--store-ema and"),
        (MUON, 2, {}, "--optimizer muon and --deepspeed-config with ZeRO stage 2 or 3"),
        (STABLE, 3, {}, "--optimizer stable_adamw and --deepspeed-config with ZeRO stage 2 or 3"),
        (PLAIN, 2, {"common.amp": True}, "--amp and --deepspeed-config"),
        (PLAIN, 2, {"common.memory_efficient_bf16": True}, "--memory-efficient-bf16 and --deepspeed-config"),
        (PLAIN, 3, {"ema.store_ema": True}, "--store-ema and --deepspeed-config"),
        (PLAIN, 0, {"common.fp16": True}, "--fp16: .*--bf16"),
        (PLAIN, 0, {"common.memory_efficient_fp16": True}, "--fp16: .*--bf16"),
        (PLAIN, 0, {"dataset.batch_size": None}, "--batch-size: .*--max-tokens"),
        (PLAIN, 0, {"dataset.batch_size": 12}, "--batch-size 12: .*--required-batch-size-multiple 1"),
        (
            PLAIN,
            0,
            {"optimization.batch_warmup_updates": 5, "optimization.update_freq": [1]},
            "--batch-warmup-updates: ",
        ),
        (
            PLAIN,
            0,
            {"optimization.batch_warmup_updates": 5, "optimization.update_freq": [2], "common.amp": True},
            "--batch-warmup-updates: ",
        ),
        (PLAIN, 0, {"optimization.no_decay": "norms,bias"}, "--no-decay norms,bias: it is a list of norms, biases, positions"),
        (
            PLAIN,
            0,
            {"optimization.no_decay": "norms", "distributed_training.ddp_backend": "fully_sharded"},
            "--ddp-backend fully_sharded and --no-decay",
        ),
        (PLAIN, 0, {"optimization.no_decay": "norms", "optimizer._name": "composite"}, "--optimizer composite and --no-decay"),
        *((PLAIN, 0, {"common.profile_steps": text}, f"--profile-steps {text}: ") for text in ("5", "9-8", "0-3", "a-b")),
        (PLAIN, 0, {"common.profile_steps": "4-5", "optimization.max_update": 3}, "--profile-steps 4-5: "),
        (DECAY, 0, {"optimization.max_update": 9}, "--max-update 9: .*--total-num-update 5"),
        (PLAIN, 0, {"checkpoint.write_checkpoints_asynchronously": True}, "--write-checkpoints-asynchronously: .*begin again"),
        (PLAIN, 0, {"model.compile": True}, "--compile: .*--task masked_lm_static"),
        (STATIC, 0, {"model._name": "roberta_base"}, "--task masked_lm_static.*roberta_tisa"),
        (PLAIN, 0, {"model._name": "roberta_base", "task.pack_examples": 16}, "--task .*--pack-examples: "),
        (PLAIN, 0, {"criterion._name": "cross_entropy"}, "--criterion cross_entropy: .*use --criterion masked_lm"),
        (
            PLAIN,
            0,
            {"task.random_token_prob": 0.6, "task.leave_unmasked_prob": 0.5},
            r"--random-token-prob 0\.6 and --leave-unmasked-prob 0\.5: ",
        ),
        (PLAIN, 0, {"task.mask_prob_updates": 5}, "--mask-prob-end None: .*--mask-prob-updates"),
        (PLAIN, 0, {"task.mask_prob_end": 0.1}, r"--mask-prob-end 0\.1: .*--mask-prob-updates"),
        (STATIC, 0, {"task.mask_prob_end": 0.2, "task.mask_prob_updates": 9}, r"--mask-prob-end 0\.2: .*--mask-prob 0\.15"),
        (
            PLAIN,
            0,
            {"task.mask_prob_end": 0.1, "task.mask_prob_updates": 9, "task.mask_whole_words": True},
            r"--mask-prob-end 0\.1 and masks of several tokens: .*--mask-whole-words",
        ),
        (STATIC, 0, {"dataset.max_tokens": 64}, "--task masked_lm_static: .*--max-tokens"),
        (
            STATIC,
            0,
            {"task.pack_documents": True, "task.sample_break_mode": "eos"},
            "--sample-break-mode eos and --pack",
        ),
        (ORDER, 0, {"task.sample_break_mode": "complete"}, "--sample-break-mode complete: .*complete_doc"),
        (ORDER, 0, {"task.sample_break_mode": "complete_doc", "model.mask_decoder_steps": 2}, "--mask-decoder-steps: "),
    ],
)
def test_what_is_refused(flags, zero, values, message):
    with pytest.raises(InputError, match=f"^{message}"):
        refusals.check(configured(flags, values), zero)


@pytest.mark.parametrize("flags", [PLAIN, STATIC, FUSED, STABLE, MUON, f"{DECAY} --max-update 5", *FEWER_MASKS])
def test_what_is_not(flags):
    refusals.check(configured(flags, {}))
    if flags in (PLAIN, STATIC):
        refusals.check(configured(flags, {}), zero=2)


def test_sums_that_cannot_be_taken_at_once(monkeypatch):
    cfg = configured(FUSED.replace("masked_lm", "masked_lm_static"), {})
    refusals.check(cfg)
    monkeypatch.setattr(StaticMaskedLmLoss, "logging_outputs_can_be_summed", lambda: False)
    with pytest.raises(InputError, match=r"^--criterion masked_lm_static and --optimizer fused_adam"):
        refusals.check(cfg)
