"""``fairseq-posenc bench``: a row is timed once it agrees with the reference, kept, and never of other conditions."""

import contextlib
import json
import sys

import pytest
import torch

from fairseq_posenc.cli import main
from fairseq_posenc.core.attention import BACKENDS
from fairseq_posenc.core.attention.eager import Eager
from fairseq_posenc.study.bench import peers
from fairseq_posenc.study.bench.attention import agreement, positions_of
from fairseq_posenc.study.bench.steps import FAIRSEQS, Step, Steps
from fairseq_posenc.study.measure.work import Machine, Shape, shapes

TINY = ["bench", "--size", "tiny", "--layers", "1", "--tokens", "9", "--repeats", "1", "--device", "cpu"]
SMALL = Shape(layers=2, dim=16, ffn_dim=40, heads=2, symbols=50, tokens=12, sequences=2)
CPU = torch.device("cpu")


class Wrong(Eager):
    """A backend that is off by a little."""

    name = "wrong"

    def bind(self, terms, mask, call):
        attend = super().bind(terms, mask, call)
        return lambda q, k, v: (attend(q, k, v * 1.001)[0], None)


def test_bench_compares_with_stock(capsys):
    assert main([*TINY, "--schemes", "tisa,shaw"]) == 0
    title, _, header, _, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("1 layers, D = 128")
    assert header.startswith("| architecture")
    assert [line.split()[1] for line in rows] == ["roberta_base", "roberta_tisa", "roberta_shaw"]


def test_bench_of_another_family(capsys):
    assert main([*TINY, "--family", "modernbert", "--baseline", "rope", "--schemes", "tisa"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[4:]]
    assert [row[1:4:2] for row in rows] == [["modernbert_rope", "sdpa"], ["modernbert_tisa", "sdpa"]]  # it has no dropout


def test_bench_leaves_out_what_a_backend_cannot_run(capsys, monkeypatch):
    monkeypatch.setattr("fairseq_posenc.study.bench.run.known_schemes", lambda: ["shaw", "tisa"])
    sdpa = [*TINY, "--attention-backend", "sdpa"]
    assert main(sdpa) == 0
    out, err = capsys.readouterr()
    assert [line.split()[1] for line in out.splitlines()[-2:]] == ["roberta_base", "roberta_tisa"]
    assert err.count("roberta_shaw at n = 9 was not timed: --attention-backend sdpa cannot run") == 1
    assert main([*sdpa, "--schemes", "shaw"]) == 2


def test_what_does_not_agree_is_not_timed(capsys, monkeypatch, tmp_path):
    """And is tried again by the same command."""
    monkeypatch.setitem(BACKENDS, "wrong", Wrong())
    command = [*TINY, "--schemes", "tisa", "--attention-backend", "sdpa,wrong", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert [line.split()[1:4:2] for line in out.splitlines()[-1:]] == [["roberta_tisa", "sdpa"]]
    assert "roberta_tisa (wrong) at n = 9 was not timed: it does not agree with the reference: its error" in err
    again, timed = [], {"ran": "wrong", "refused": None, "timings": {}}
    monkeypatch.setattr(Steps, "__call__", lambda self, model, *_: again.append(model.backend) or timed)
    assert main(command) == 0
    assert again == ["wrong"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("positions", ["m4m", "fire", "untied+t5+reset", "deberta"])
def test_what_is_right_agrees(positions, dtype):
    for name in ("eager", "sdpa"):
        if BACKENDS[name].objection(positions_of(positions, SMALL).probes()[0]) is None:
            error, allowed = agreement(positions, name, SMALL, Machine(CPU, dtype))
            assert error <= allowed


def test_a_killed_bench_goes_on(capsys, monkeypatch, tmp_path):
    command = [*TINY, "--schemes", "tisa,t5", "--out", str(tmp_path / "out")]
    timed, real = [], Steps.__call__

    def counted(self, model, *rest):
        if len(timed) == 2:
            raise KeyboardInterrupt
        timed.append(model.name)
        return real(self, model, *rest)

    monkeypatch.setattr(Steps, "__call__", counted)
    assert main(command) == 130
    timed[:] = ["", "", ""]  # from now on none stops it
    assert main(command) == 0
    assert timed[3:] == ["roberta_t5"]
    results = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert [result["model"] for result in results] == [FAIRSEQS, "roberta_tisa", "roberta_t5"]
    assert set(results[1]["timings"]) == {"attention", "step"}
    assert (tmp_path / "out" / "results.md").read_text().splitlines()[-1] == capsys.readouterr().out.splitlines()[-1]
    assert main([*command, "--repeats", "2"]) == 2
    assert "is of another configuration: repeats was 1, now 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--schemes", "tsia"], "--schemes tsia"),
        (["--baseline", "tsia"], "--baseline tsia"),
        (["--attention-backend", "flash"], "--attention-backend flash"),
        (["--attention-backend", "sdpa", "--schemes", "shaw"], "--attention-backend sdpa cannot run these positions"),
        (["--peers", "gpt"], "--peers gpt"),
        (["--repeats", "0"], "--repeats"),
        (["--tokens", "0"], "--tokens"),
        (["--tokens", "9,x"], "--tokens"),
        (["--device", "tpu"], "--device tpu"),
        (["--device", "cuda:99"], "--device cuda:99"),
    ],
)
def test_bad_flags_are_refused(flags, named, capsys):
    with contextlib.suppress(SystemExit):  # argparse's, with the status 2
        assert main([*TINY, *flags]) == 2
    assert named in capsys.readouterr().err


def test_what_does_not_fit_is_said(capsys):
    assert main([*TINY, "--schemes", "none", "--batch-size", "1000000000"]) == 0
    assert "roberta_none" in capsys.readouterr().err


def test_longer_sequences_are_fewer():
    assert [(shape.tokens, shape.sequences) for shape in shapes(SMALL, [12, 24, 100])] == [(12, 2), (24, 1), (100, 1)]


@pytest.mark.parametrize("name", peers.PEERS)
def test_peers_have_our_sizes(name):
    pytest.importorskip("transformers", reason="needs pip install -e '.[hf]'")
    model, loss, ran = peers.build(name, SMALL)
    step = Step(model, loss, SMALL, Machine(CPU, torch.float32))
    assert step.compute().isfinite()
    weights = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    assert {SMALL.dim, SMALL.symbols} <= {size for weight in weights for size in weight.shape}
    assert ran.startswith("transformers")


def test_a_peer_that_is_not_installed_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main([*TINY, "--peers", "bert"]) == 2
    assert "pip install 'transformers" in capsys.readouterr().err
