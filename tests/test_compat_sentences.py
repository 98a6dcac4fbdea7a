"""fairseq's programs as they are started: what is missing or cannot be used is said in one sentence, with status 2."""

import errno
import sys

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import eval_lm, generate, hydra_train, interactive, train, validate

from fairseq_posenc.compat import exits
from fairseq_posenc.compat.sentences import in_sentences
from fairseq_posenc.errors import InputError

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
        return capsys.readouterr().err.splitlines()[-1].partition(": ")[2]

    return said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "error: the following arguments are required: --arch/-a"),
        (f"nowhere {FLAGS}", "There is no dictionary nowhere/dict.txt."),
        (f"BIN {FLAGS.replace('--batch-size 8', '')}", "Must specify batch size either with --max-tokens or --batch-size"),
        (f"BIN {FLAGS} --lr-scheduler polynomial_decay", "--total-num-update (lr_scheduler.total_num_update) is missing"),
        (f"BIN {FLAGS} --train-subset none", "Dataset not found: none"),
        (f"BIN {FLAGS} --restore-file none.pt", "--restore-file none.pt does not exist"),
        (f"BIN {FLAGS} --restore-file file", "file cannot be read as a checkpoint: it is truncated, damaged or another kind"),
        (f"BIN {FLAGS} --finetune-from-model none.pt", "--finetune-from-model none.pt does not exist"),
        (f"BIN {FLAGS} --tensorboard-logdir file", "file/"),
        (f"BIN {FLAGS} --user-dir none", "--user-dir "),
    ],
)
def test_what_training_cannot_use(flags, message, said):
    assert said(train, flags)[: len(message)] == message


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        (generate, "BIN", "--path is missing: name a checkpoint"),
        (interactive, "BIN", "--path is missing: name a checkpoint"),
        (eval_lm, "BIN", "--path is missing: name a checkpoint"),
        (validate, "BIN --task masked_lm --batch-size 2", "--path is missing: name a checkpoint"),
        (validate, "BIN --path x", "error: the following arguments are required: --task"),
        (generate, "BIN --path x --model-overrides {1", "--model-overrides {1: a dictionary is needed"),
        (generate, "BIN --path x --beam 0", "--beam 0: at least 1 is needed"),
        (eval_lm, "BIN --path x --tokens-per-sample 8 --context-window 8", "--context-window 8: less than --tokens-per-sample 8"),
    ],
)
def test_what_is_asked_of_a_trained_model(module, flags, message, said):
    assert said(module, flags)[: len(message)] == message


def test_a_configuration_without_a_model(said):
    assert said(hydra_train, "").startswith("model is missing: name a configuration that has it (--config-dir, --config-name)")


def test_a_command_of_ours_shows_errors_itself():
    args = options.parse_args_and_arch(options.get_training_parser(), ["nowhere", *FLAGS.split()])
    with pytest.raises(FileNotFoundError, match="There is no dictionary nowhere"):
        distributed_utils.call_main(convert_namespace_to_omegaconf(args), train.main)


def test_divergence_says_what_to_change(capsys):
    with pytest.raises(SystemExit), in_sentences({}):
        raise FloatingPointError("gradients are Nan/Inf")
    assert "training has diverged (gradients are Nan/Inf): lower --lr" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x y"), AssertionError("x y"), RuntimeError("--flag is wrong")])
def test_faults_of_the_program_keep_their_traceback(error):
    with pytest.raises(type(error)), in_sentences({}):
        raise error


def test_only_the_process_that_knows_says_it(monkeypatch, capsys):
    """The first of a host says it in a sentence; another, which is still there after that, in a traceback."""
    monkeypatch.setattr(exits, "GRACE_SECONDS", 0)
    full = OSError(errno.ENOSPC, "No space left on device", "somewhere")
    with pytest.raises(SystemExit), in_sentences({}):
        raise full
    assert capsys.readouterr().err.endswith(": somewhere: No space left on device\n")
    with pytest.raises(InputError), in_sentences({}, local_rank=1):
        raise InputError("here alone")
