"""The log names the attention backend that training runs."""

import re

import pytest

from fairseq_posenc.core.attention import BACKENDS

LINE = re.compile(r"attention backend (\w+) \(SentenceEncoder, cpu, (\w+), attention dropout (\S+)\)$")
CASES = [  # positions, --attention-backend, more of the configuration, and what is logged
    ("rope", "auto", {"model.attention_dropout": 0.1}, ("chunked", "float32", "0.1")),
    ("m2", "auto", {"common.bf16": True}, ("chunked", "bfloat16", "0.0")),
    ("absolute", "auto", {}, ("sdpa", "float32", "0.0")),
    ("synthesizer_dense", "auto", {}, ("eager", "float32", "0.0")),
    ("t5", "sdpa", {"model.attention_dropout": 0.1}, ("sdpa", "float32", "0.1")),
]


@pytest.mark.parametrize(("positions", "backend", "values", "logged"), CASES)
def test_what_is_logged_is_what_ran(positions, backend, values, logged, train, caplog, monkeypatch):
    bound = set()
    for each in BACKENDS.values():
        monkeypatch.setattr(each, "bind", lambda *args, each=each, bind=each.bind: bound.add(each.name) or bind(*args))
    model = {"model._name": "roberta_posenc", "model.positions": positions, "model.attention_backend": backend}
    train("plain", "run", {**model, "optimization.max_update": 2, **values})
    (found,) = [match.groups() for record in caplog.records if (match := LINE.search(record.getMessage()))]
    assert found == logged
    assert bound == {logged[0]}
