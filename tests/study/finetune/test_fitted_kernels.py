"""TISA fitted to absolute positions, fine-tuned without more pretraining, and the table over the number of kernels."""

import pytest
from glue_files import write_task

from fairseq_posenc.cli import main

KERNELS = (0, 1, 3)
FLAGS = "--tasks RTE,SST-2 --lrs 1e-3 --seeds 2 --epochs 1 --batch-size 8 --max-length 16".split()  # noqa: SIM905


@pytest.mark.slow
@pytest.mark.parametrize("replace", [[], ["--replace"]], ids=["a", "b"])
def test_table_3(replace, pretrain, tmp_path, capsys):
    pytest.importorskip("transformers")
    checkpoint = pretrain("roberta_absolute_tiny")
    for task in ("RTE", "SST-2"):
        write_task(tmp_path / "glue", task, rows=24)
    for kernels in KERNELS:
        start = tmp_path / f"{kernels}/model.pt"
        assert main(["init-tisa", str(checkpoint), "--kernels", str(kernels), "--out", str(start), *replace]) == 0
        data = ["--data", str(tmp_path / "glue"), "--checkpoint", str(start)]
        assert main(["glue", *data, "--out", str(tmp_path / f"glue{kernels}"), *FLAGS]) == 0
    capsys.readouterr()
    assert main(["report", *(f"S={kernels}={tmp_path / f'glue{kernels}'}" for kernels in KERNELS)]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in header.split("|")[1:-1]] == ["task", "metric", "S=0", "S=1", "S=3", "Δ", "Δ%"]
    assert [row.split("|")[1].strip() for row in rows] == ["RTE", "SST-2"]
