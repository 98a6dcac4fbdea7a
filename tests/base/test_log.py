"""The log as fairseq's own progress bar writes it."""

import logging

from fairseq.logging.progress_bar import progress_bar

from fairseq_posenc.base.log import validation_losses

FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # of fairseq_cli


def test_the_last_losses_in_validation(tmp_path):
    path = tmp_path / "train.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    try:
        logging.getLogger("fairseq_cli.train").info({"_name": None, "loss": 3})
        for updates, loss in ((5, 8.5), (10, 7.25), (10, 7.5)):
            bar = progress_bar(range(2), log_format="json", log_interval=1, epoch=1, prefix="valid on 'valid' subset")
            list(bar)
            bar.print({"loss": loss, "nll_loss": 1e-3, "ppl": 2, "num_updates": updates}, tag="valid", step=updates)
        bar = progress_bar(range(10), log_format="json", log_interval=5, epoch=1)
        for number, _ in enumerate(bar):
            bar.log({"loss": 9 - number / 10, "ups": "4.0", "num_updates": number}, tag="train_inner", step=number)
        bar.print({"loss": 8.75, "train_wall": 3, "num_updates": 10}, tag="train", step=10)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert validation_losses(path) == {5: 8.5, 10: 7.5}
