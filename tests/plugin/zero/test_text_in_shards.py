"""Training text in several data-bins, of which one is loaded an epoch."""

import pytest
from training_runs import assert_same_curve, launcher, needs_deepspeed

from fairseq_posenc.cli import main

pytestmark = [needs_deepspeed, pytest.mark.slow]


@pytest.fixture(scope="module")
def shards(english_data_bin, tmp_path_factory):
    """Five of about 13 updates each."""
    texts = [english_data_bin.parent / f"{split}.txt" for split in ("train", "valid")]
    out = tmp_path_factory.mktemp("shards") / "data-bin"
    flags = ["--document-per-line", "--vocab-size", 600, "--shards", 5, "--workers", 1]
    assert main([*map(str, ["prepare", texts[0], "--valid", texts[1], "--out", out, *flags])]) == 0
    return (out / "shards.txt").read_text().strip()


def test_a_run_goes_on_in_the_middle_of_a_shard(shards, train, tmp_path):
    flags = ("--deepspeed-config", "zero2", "--save-interval-updates", 20)
    whole = train(*flags, launch=launcher(), data=shards)
    assert all(f"/shard-{index:05}/train" in whole.output for index in range(4))
    first = train(*flags, launch=launcher(), data=shards, save_dir=tmp_path, updates=20)
    assert list(first.curve) == list(range(1, 21))
    assert_same_curve(train(*flags, launch=launcher(), data=shards, save_dir=tmp_path), whole, start=20)
