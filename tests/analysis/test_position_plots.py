"""``--position-plots``: pictures in TensorBoard at each validation."""

import fairseq  # noqa: F401 - registers the plugin
import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fairseq_posenc.errors import InputError
from fairseq_posenc.finetuning import fairseq_run
from fairseq_posenc.pipeline.checks import complete_model

FLAGS = """--task masked_lm --criterion masked_lm --tokens-per-sample 16 --encoder-embed-dim 8 --encoder-ffn-embed-dim 8
    --encoder-attention-heads 2 --optimizer adam --lr 1e-3 --max-update 2 --validate-interval-updates 1 --batch-size 2
    --num-workers 0 --cpu --no-save --max-valid-steps 1 --position-plots"""


@pytest.fixture(scope="module")
def data_bin(world):
    return world.english


def parsed(arch, flags):
    return options.parse_args_and_arch(options.get_training_parser(), ["--arch", arch, *flags])


def test_functions_and_vectors_are_drawn_at_each_validation(data_bin, tmp_path):
    flags = [str(data_bin), *FLAGS.split(), "--positions", "absolute+tisa", "--tensorboard-logdir", str(tmp_path / "board")]
    flags += ["--save-dir", str(tmp_path)]
    cfg = convert_namespace_to_omegaconf(parsed("roberta_posenc_tiny", flags))
    fairseq_run.train(cfg, lambda text, share=None: None)
    events = EventAccumulator(str(tmp_path / "board" / "positions")).Reload()
    assert sorted(events.Tags()["images"]) == ["bias", "content", "products"]
    assert sorted({event.step for event in events.Images("bias")}) == [1, 2]


def test_they_need_a_place_to_go_to(data_bin):
    cfg = convert_namespace_to_omegaconf(parsed("roberta_tisa_tiny", [str(data_bin), *FLAGS.split()]))
    with pytest.raises(InputError, match=r"--position-plots .*--tensorboard-logdir"):
        complete_model(cfg)
