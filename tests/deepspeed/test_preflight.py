"""What preflight makes of hostfiles and answers; that it asks hosts is tested with two of them, in test_two_hosts.py."""

import argparse
import json
import re
from pathlib import Path

import pytest

from fairseq_posenc.plugin.zero import preflight
from fairseq_posenc.plugin.zero.preflight import Host
from fairseq_posenc.text.data.folder import Folder

GOOD = {
    "python": "3.11.7", "torch": "2.13.0", "deepspeed": "0.19.8", "fairseq": "0.12.2", "package": "0.1",
    "gpus": 8, "gpu": "A100", "has_nvidia": True, "data": "0123abcd", "missing": [], "shared": True, "free_gb": 100.0,
    "all_reduce": "3 ms, 20.00 GB/s",
}  # fmt: skip
ARGUMENTS = argparse.Namespace(data="/data/bin", save_dir=Path("/shared"), need_gb=50, cpu=False)


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
        ("node1 slots=8\nnode1 slots=8\n", "line 2: node1 is listed twice"),
        ("node1 slots=8\n-oProxyCommand=date slots=8\n", "line 2: ssh would take the host '-oProxyCommand=date' for an option"),
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
        ({"data": "missing", "missing": ["/data/bin"]}, "node2: there is no data-bin /data/bin"),
        ({"shared": False}, "node2: --save-dir /shared is another folder"),
        ({"free_gb": 3.0}, "node2: 3.0 GB are free in --save-dir, --need-gb is 50"),
        ({"gpu": "H100"}, "node2 has GPU H100, node1 has A100"),
        ({"gpus": 4}, "node2: the hostfile has slots=8, and PyTorch sees 4 GPUs"),
        ({"gpus": 0, "has_nvidia": False}, "node2: the hostfile has slots=8, and PyTorch sees 0 GPUs"),
    ],
)
def test_what_is_wrong_with_a_host_is_said(difference, message):
    hosts = [Host("node1", 8), Host("node2", 8)]
    assert preflight.problems(hosts, [GOOD, GOOD], ARGUMENTS) == []
    found = preflight.problems(hosts, [GOOD, {**GOOD, **difference}], ARGUMENTS)
    assert any(message in problem for problem in found)


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ({"deepspeed": "missing"}, "DeepSpeed is not installed"),
        ({"fairseq": "missing"}, "fairseq is not installed"),
        ({"data": "missing", "missing": ["/data/bin"]}, "there is no data-bin /data/bin"),
        ({"gpus": 0, "gpu": "none"}, "PyTorch 2.13.0 does not see this host's NVIDIA GPU"),
        ({"gpus": 4}, "the hostfile has slots=8, and PyTorch sees 4 GPUs"),
    ],
)
def test_hosts_that_are_alike_can_all_be_wrong(difference, message):
    hosts, answers = [Host("node1", 8), Host("node2", 8)], [{**GOOD, **difference}] * 2
    found = preflight.problems(hosts, answers, ARGUMENTS)
    assert [problem.partition(": ")[0] for problem in found] == ["node1", "node2"]
    assert all(message in problem for problem in found)


def test_hosts_without_any_gpu_train_on_cpus():
    hosts, answers = [Host("node1", 8), Host("node2", 8)], [{**GOOD, "gpus": 0, "gpu": "none", "has_nvidia": False}] * 2
    assert preflight.problems(hosts, answers, ARGUMENTS) == []
    hidden = [{**GOOD, "gpus": 0, "gpu": "none"}] * 2
    assert preflight.problems(hosts, hidden, argparse.Namespace(**{**vars(ARGUMENTS), "cpu": True})) == []


def test_hosts_may_have_different_numbers_of_gpus():
    assert preflight.problems([Host("node1", 8), Host("node2", 4)], [GOOD, {**GOOD, "gpus": 4}], ARGUMENTS) == []


@pytest.mark.parametrize("cpu", [False, True])
def test_checks_for_a_run_on_cpus_see_no_gpu(monkeypatch, cpu):
    commands = []

    def run(command, **_):
        commands.append(command[-1])
        return argparse.Namespace(returncode=0, stdout=json.dumps(GOOD))

    monkeypatch.setattr(preflight.subprocess, "run", run)
    assert preflight._check_one(Host("node1", 8), ["look", "data", "token"], 1.0, cpu) == GOOD
    assert commands[0].startswith("env CUDA_VISIBLE_DEVICES= ") == cpu


@pytest.mark.parametrize("line", ["Welcome to node1", "[" * 100_000, "[]", "3", '{"python": "3.11.7"}'])
def test_an_answer_that_is_none_is_an_error_of_the_host(line):
    answer = preflight.parse("look", line)
    assert "another version of this package" in answer["error"]
    assert preflight.problems([Host("node1", 8)], [answer], ARGUMENTS) == [f"node1: {answer['error']}"]
    assert preflight.parse("look", json.dumps(GOOD)) == GOOD


def test_a_host_that_does_not_answer_has_a_row_and_a_problem():
    hosts, answers = [Host("node1", 8), Host("node2", 8)], [GOOD, {"error": "ssh cannot reach it"}]
    assert preflight.problems(hosts, answers, ARGUMENTS) == ["node2: ssh cannot reach it"]
    header, first, second = preflight.table(hosts, answers).splitlines()
    assert first.split()[:3] == ["node1", "3.11.7", "2.13.0"]
    assert set(second.split()[1:]) == {"–"}
    assert len(header.split("  ")) > 5


def make_data_bin(folder, size=2):
    folder.mkdir(exist_ok=True)
    (folder / "dict.txt").write_text("a 1\n")
    (folder / "train.bin").write_bytes(bytes(size))
    return folder


def test_a_data_bin_has_a_dictionary_and_training_data(tmp_path):
    assert not preflight.is_data_bin(tmp_path / "nowhere")
    make_data_bin(tmp_path)
    assert preflight.is_data_bin(tmp_path)
    for name in ("dict.txt", "train.bin"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        assert not preflight.is_data_bin(tmp_path)
        (tmp_path / name).write_bytes(content)


def test_the_fingerprint_of_data_sees_content_and_sizes(tmp_path):
    first = preflight.fingerprint([make_data_bin(tmp_path)])
    make_data_bin(tmp_path, size=3)
    second = preflight.fingerprint([tmp_path])
    (tmp_path / "dict.txt").write_text("b 1\n")
    assert len({first, second, preflight.fingerprint([tmp_path])}) == 3


def test_data_in_shards_are_found_by_their_list_and_one_by_one(tmp_path):
    data = Folder(tmp_path, 2)
    bins = [make_data_bin(folder) for folder in data.shards.values()]
    data.list_shards()
    (tmp_path / "token").touch()
    one_by_one = ":".join(map(str, bins))
    answers = [preflight.look(data, str(tmp_path / "token")) for data in (str(tmp_path), one_by_one)]
    assert answers[0]["data"] == answers[1]["data"] != preflight.fingerprint(bins[:1])
    assert answers[0]["missing"] == []
    (bins[1] / "train.bin").unlink()
    damaged = preflight.look(str(tmp_path), str(tmp_path / "token"))
    assert (damaged["data"], damaged["missing"]) == ("missing", [str(bins[1])])
