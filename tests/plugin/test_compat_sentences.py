"""fairseq's programs as they are started: what is missing or cannot be used is said in one sentence, with status 2."""

import errno
import sys
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from fairseq_cli import eval_lm, generate, hydra_train, interactive, train, validate
from omegaconf import OmegaConf

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.processes import exits
from fairseq_posenc.plugin.run.program_run import ProgramRun, report_errors

EXAMPLES = Path(__file__).parents[2] / "examples/pretraining"
FLAGS = """--task masked_lm --criterion masked_lm --tokens-per-sample 16 --arch roberta_tisa_tiny --encoder-layers 1
    --encoder-embed-dim 8 --encoder-ffn-embed-dim 8 --encoder-attention-heads 2 --optimizer adam --lr 1e-3 --batch-size 8
    --num-workers 0 --cpu --no-save"""


@pytest.fixture
def said(data_bin, tmp_path, monkeypatch, capsys):
    """``said(module, flags)``: the last line of what the program says before it ends with status 2; BIN is the data-bin."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no checkpoint")

    def said(module, flags):
        monkeypatch.setattr(sys, "argv", [f"/anywhere/{module.__name__}", *flags.replace("BIN", str(data_bin)).split()])
        with pytest.raises(SystemExit) as left:
            module.cli_main()
        assert left.value.code == 2
        said, _, after = capsys.readouterr().err.rstrip("\n").rpartition(f"{module.__name__}: ")[2].partition("\n")
        assert not after
        return said

    return said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "the following arguments are required: --arch/-a"),
        (f"BIN {FLAGS} --tisa-kernel 3", "there is no flag --tisa-kernel: did you mean --tisa-kernels? --help lists all"),
        (f"BIN {FLAGS} --log-interval", "--log-interval: expected one argument"),
        (f"nowhere {FLAGS}", "There is no dictionary nowhere/dict.txt."),
        (f"BIN {FLAGS.replace('--batch-size 8', '')}", "--batch-size: it is missing"),
        (
            f"BIN {FLAGS} --batch-size 12",
            "--batch-size 12: fairseq would make batches of a multiple",
        ),
        (
            f"BIN {FLAGS} --lr-scheduler polynomial_decay --total-num-update 5 --max-update 9",
            "--max-update 9: the learning rate is 0 from --total-num-update 5 on",
        ),
        (
            f"BIN {FLAGS} --lr-scheduler polynomial_decay --total-num-update 5",
            "--max-update 0: the learning rate is 0 from --total-num-update 5 on",
        ),
        (f"BIN {FLAGS} --batch-size 12 --max-tokens 999", "--batch-size 12: fairseq would"),
        (f"BIN {FLAGS} --arch transformer_tisa_tiny", "--task masked_lm: it is for encoders, such as --arch roberta_tisa"),
        (f"BIN {FLAGS} --best-checkpoint-metric accuracy", "--best-checkpoint-metric accuracy: the worst checkpoint"),
        (
            f"BIN {FLAGS} --maximize-best-checkpoint-metric",
            "--best-checkpoint-metric loss: the worst",
        ),
        (f"BIN {FLAGS} --valid-subset valid,train", "--valid-subset valid,train: it contains --train-subset"),
        (f"BIN {FLAGS} --max-epoch 4 --save-interval 3", "--max-epoch 4: training would end without a checkpoint"),
        (f"BIN {FLAGS} --best-checkpoint-metric order_accuracy", "--best-checkpoint-metric order_accuracy: the worst"),
        (f"BIN {FLAGS} --best-checkpoint-metric acc", "--best-checkpoint-metric acc with --task masked_lm: it measures"),
        (f"BIN {FLAGS} --lr-scheduler polynomial_decay", "--total-num-update is missing (lr_scheduler.total_num_update)"),
        (f"BIN {FLAGS} --train-subset none", "Dataset not found: none"),
        (f"BIN {FLAGS} --restore-file none.pt", "--restore-file none.pt is no file"),
        (f"BIN {FLAGS} --restore-file file", "file cannot be read as a checkpoint: it is truncated, damaged or another kind"),
        (f"BIN {FLAGS} --finetune-from-model none.pt", "--finetune-from-model none.pt does not exist"),
        (f"BIN {FLAGS} --tensorboard-logdir file", "file/"),
        (f"BIN {FLAGS} --user-dir none", "--user-dir "),
        (f"BIN {FLAGS.partition('--tokens-per-sample 16')[2]}", "--task translation is for models of another kind"),
    ],
)
def test_what_training_cannot_use(flags, message, said):
    assert said(train, flags)[: len(message)] == message


def test_data_bins_with_different_words(said, data_bin):
    Path("other").mkdir()
    Path("other/dict.txt").write_text("word 1\n")
    assert said(train, f"BIN:other {FLAGS}")[:-1].endswith("the only one that fairseq reads"[:-1])


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        (generate, "BIN", "--path is missing: name a checkpoint"),
        (interactive, "BIN", "--path is missing: name a checkpoint"),
        (eval_lm, "BIN", "--path is missing: name a checkpoint"),
        (validate, "BIN --task masked_lm --batch-size 2", "--path is missing: name a checkpoint"),
        (generate, "BIN --path x --beam 0", "--beam 0: at least 1 is needed"),
    ],
)
def test_what_is_asked_of_a_trained_model(module, flags, message, said):
    assert said(module, flags)[: len(message)] == message


def test_a_configuration_without_a_model(said):
    assert said(hydra_train, "").startswith("model is missing: name a configuration that has it (--config-dir, --config-name)")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.tisa_kernel=3", "there is no option model.tisa_kernel: did you mean tisa_kernels?"),
        ("task.tokens_per_sampl=3", "there is no option task.tokens_per_sampl: did you mean tokens_per_sample?"),
        ("task.sample_break_mode=whole", "Invalid value 'whole'"),
        ("lr_scheduler._name=inverse_sqrt", "Key 'total_num_update' not in 'InverseSquareRootLRScheduleConfig'"),
        ("mode.dropout=0", "there is no option mode: did you mean model?"),
        ("model=roberta_tissa", "model: there is no roberta_tissa: did you mean roberta_tisa or "),
        ("optimizer=adamm", "optimizer: the configuration has no choice of it; give its options, such as optimizer._name="),
        ("common.log_interval=abc", "common.log_interval must be a whole number, got 'abc'"),
        ("model.rope_base=x", "model.rope_base must be a number, and finite, got 'x'"),
    ],
)
def test_an_override_that_hydra_rejects(said, override, message):
    assert said(hydra_train, f"--config-dir {EXAMPLES} --config-name tiny task.data=BIN {override}").startswith(message)


@pytest.mark.parametrize(
    ("flags", "missing"), [("tiny", "task.data"), ("huang2021_large task.data=BIN", "checkpoint.finetune_from_model")]
)
def test_a_value_that_a_configuration_asks_for(flags, missing, said):
    """Also one for which fairseq has a default."""
    assert said(hydra_train, f"--config-dir {EXAMPLES} --config-name {flags}").startswith(f"{missing} is missing: ")


def test_a_missing_configuration_is_named_with_those_that_are_there(said):
    message = said(hydra_train, f"--config-dir {EXAMPLES} --config-name bsae")
    assert message.startswith("--config-name bsae: did you mean base")
    assert "tupe_base" in message


def test_ctrl_c_says_how_to_resume(data_bin, tmp_path, monkeypatch, capsys):
    step = Trainer.train_step

    def interrupted(self, *args, **kwargs):
        if self.get_num_updates() == 1:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    flags = [*FLAGS.removesuffix("--no-save").split(), "--save-dir", str(tmp_path), "--save-interval-updates", "1"]
    monkeypatch.setattr(sys, "argv", ["fairseq-train", str(data_bin), *flags])
    with pytest.raises(SystemExit) as left:
        train.cli_main()
    assert left.value.code == 130
    assert str(tmp_path / "checkpoint_last.pt") in capsys.readouterr().err.splitlines()[-1]


def test_a_command_of_ours_shows_errors_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # fairseq makes --save-dir there, whatever it saves
    args = options.parse_args_and_arch(options.get_training_parser(), ["nowhere", *FLAGS.split()])
    with pytest.raises(FileNotFoundError, match="There is no dictionary nowhere"):
        distributed_utils.call_main(convert_namespace_to_omegaconf(args), train.main)


def in_process(device_id):
    cfg = OmegaConf.create({"distributed_training": {"device_id": device_id, "distributed_rank": device_id}})
    return report_errors(ProgramRun(cfg, print, "fairseq-train"))


def test_divergence_says_what_to_change(capsys):
    with pytest.raises(SystemExit), in_process(0):
        raise FloatingPointError("gradients are Nan/Inf")
    assert "training has diverged (gradients are Nan/Inf): lower --lr" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x y"), AssertionError("x y"), RuntimeError("--flag is wrong")])
def test_faults_of_the_program_keep_their_traceback(error):
    with pytest.raises(type(error)), in_process(0):
        raise error


def test_only_the_process_that_knows_reports_it(monkeypatch, capsys):
    """The first of a host reports it at once; another, which still runs after that, has met it alone."""
    full = OSError(errno.ENOSPC, "No space left on device", "somewhere")
    with pytest.raises(SystemExit), in_process(0):
        raise full
    assert capsys.readouterr().err.endswith(": somewhere: No space left on device\n")
    waited = []
    monkeypatch.setattr(exits.time, "sleep", waited.append)
    with pytest.raises(SystemExit) as left, in_process(1):
        raise InputError("here alone")
    assert left.value.code == exits.REFUSED
    assert waited == [exits.GRACE_SECONDS]
    assert capsys.readouterr().err == "fairseq-train: here alone\n"


class Rows(torch.utils.data.Dataset):
    """Data of which one row cannot be read."""

    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 1

    def __getitem__(self, index):
        try:
            raise KeyError(index)
        except KeyError as cause:
            raise self.error from cause


@pytest.mark.parametrize(
    ("error", "message"),
    [(InputError("row 0 of train.tsv is empty:\nremove it"), "row 0 of train.tsv is empty:\nremove it"),
     (PermissionError(errno.EACCES, "Permission denied", "train.bin"), "[Errno 13] Permission denied: 'train.bin'")],
)  # fmt: skip
def test_an_error_of_a_worker_is_its_sentence(error, message, capsys):
    with pytest.raises(SystemExit), in_process(0):
        list(torch.utils.data.DataLoader(Rows(error), num_workers=1))
    assert capsys.readouterr().err == f"fairseq-train: {message}\n"


def test_all_jobs_of_a_multirun_are_checked_before_the_first_starts(said):
    names = "model._name=roberta_tisa_tiny,roberta_tsia_tiny"
    message = said(hydra_train, f"-m --config-dir {EXAMPLES} --config-name tiny task.data=BIN common.cpu=true {names}")
    assert "unknown architecture 'roberta_tsia_tiny'" in message
    assert not Path("multirun/0").exists()
