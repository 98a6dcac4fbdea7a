"""What preflight makes of hostfiles and answers; that it asks hosts is tested with two of them, in test_two_hosts.py."""

import argparse
import re
from pathlib import Path

import pytest

from fairseq_posenc.deepspeed import preflight, probe
from fairseq_posenc.deepspeed.preflight import Host

GOOD = {
    "python": "3.11.7", "torch": "2.13.0", "deepspeed": "0.19.8", "fairseq": "0.12.2", "package": "0.1", "gpus": 8,
    "gpu": "8 × A100", "data": "0123abcd", "shared": True, "free_gb": 100.0, "all_reduce": "3 ms, 20.00 GB/s",
}  # fmt: skip
ARGUMENTS = argparse.Namespace(data=Path("/data/bin"), save_dir=Path("/shared"), need_gb=50)


def test_a_hostfile_is_read_as_deepspeed_reads_it(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode1 slots=8\n\nnode2 slots=4  # half\n")
    assert preflight.read_hostfile(path) == [Host("node1", 8), Host("node2", 4)]
    example = Path(__file__).parents[2] / "examples" / "multi_node" / "hosts.example"
    assert [host.slots for host in preflight.read_hostfile(example)] == [8, 8, 8, 8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node1\n", "line 1: expected 'HOST slots=N', found 'node1'"),
        ("node1 slots=8\nnode2 slots=eight\n", "line 2: expected"),
        ("node1 slots=0\n", "line 1: expected"),
        ("node1 8\n", "line 1: expected"),
        ("node1 slots=8\nnode1 slots=8\n", "line 2: node1 is there twice"),
        ("# none\n", "names no host"),
    ],
)
def test_a_bad_hostfile_is_refused_with_the_line(tmp_path, text, message):
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        preflight.read_hostfile(tmp_path / "hosts")


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ({"torch": "2.4.0"}, "node2 has PyTorch 2.4.0, node1 has 2.13.0"),
        ({"data": "ffffffff"}, "node2 has data ffffffff, node1 has 0123abcd"),
        ({"data": "missing"}, "node2: there is no data-bin /data/bin"),
        ({"shared": False}, "node2: --save-dir /shared is not the folder that this host sees"),
        ({"free_gb": 3.0}, "node2: 3.0 GB are free in --save-dir, --need-gb is 50"),
        ({"gpus": 4}, "node2: the hostfile says slots=8, it has 4 GPUs"),
    ],
)
def test_what_is_wrong_with_a_host_is_said(difference, message):
    hosts = [Host("node1", 8), Host("node2", 8)]
    assert preflight.problems(hosts, [GOOD, GOOD], ARGUMENTS) == []
    found = preflight.problems(hosts, [GOOD, {**GOOD, **difference}], ARGUMENTS)
    assert any(message in problem for problem in found)


def test_a_host_that_does_not_answer_has_a_row_and_a_problem():
    hosts, answers = [Host("node1", 8), Host("node2", 8)], [GOOD, {"error": "ssh cannot reach it"}]
    assert preflight.problems(hosts, answers, ARGUMENTS) == ["node2: ssh cannot reach it"]
    header, first, second = preflight.table(hosts, answers).splitlines()
    assert first.split()[:3] == ["node1", "3.11.7", "2.13.0"]
    assert set(second.split()[1:]) == {"–"}
    assert len(header.split("  ")) > 5


def test_the_fingerprint_of_data_sees_content_and_sizes(tmp_path):
    assert probe.fingerprint(tmp_path) == "missing"
    (tmp_path / "dict.txt").write_text("a 1\n")
    first = probe.fingerprint(tmp_path)
    (tmp_path / "train.bin").write_bytes(b"12")
    second = probe.fingerprint(tmp_path)
    (tmp_path / "train.bin").write_bytes(b"123")
    assert len({first, second, probe.fingerprint(tmp_path)}) == 3
