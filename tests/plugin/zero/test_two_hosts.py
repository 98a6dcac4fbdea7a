"""Two hosts on one machine: network namespaces with addresses, sshd and names of their own, and a cable between them.

bash scripts/test.sh tests/plugin/zero/test_two_hosts.py        (as root; Debian: iproute2 openssh-server openssh-client pdsh)
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from training_runs import OPTIONS, Training, environment, needs_deepspeed

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

ROOT = Path(__file__).parents[3]
HOSTS = {"posenc-a": "10.77.0.1", "posenc-b": "10.77.0.2"}
TOOLS = ("ip", "ssh", "ssh-keygen", "/usr/sbin/sshd", "pdsh")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
TIMEOUT = 12  # seconds until a silent peer is given up

pytestmark = [
    pytest.mark.slow,
    needs_deepspeed,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(
        bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (iproute2 openssh-server openssh-client pdsh)"
    ),
]


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=120)


class Hosts:
    """The two hosts; commands run on the first, as a user at its prompt."""

    def __init__(self, folder):
        self.folder = folder
        self.hostfile = folder / "hosts"
        self.hostfile.write_text("# for the tests\n" + "".join(f"{name} slots=1\n" for name in HOSTS))
        # What pdsh does not pass on.
        passed_on = "OMP_NUM_THREADS=1\nGLOO_SOCKET_IFNAME=eth0\n"
        (folder / ".deepspeed_env").write_text(passed_on)
        key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=120)
        # The user's ssh, which knows the key and the hosts.
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir()
        options = f"-i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
        ssh.chmod(0o755)
        path = f"{ssh.parent}{os.pathsep}{environment()['PATH']}"
        # Of an option that ssh is given twice, here and in pdsh.sh, the first counts.
        alive = "-o ServerAliveInterval=2"
        self.environment = {**environment(), "PATH": path, "GLOO_SOCKET_IFNAME": "eth0", "PDSH_SSH_ARGS_APPEND": alive}

    def connect(self):
        """Namespaces, a cable, and sshd."""
        Path("/run/sshd").mkdir(exist_ok=True)
        names = list(HOSTS)
        for name in names:
            ip("netns", "add", name)
            files = Path("/etc/netns", name)
            files.mkdir(parents=True, exist_ok=True)
            (files / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{at} {who}\n" for who, at in HOSTS.items()))
        ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for name, address in HOSTS.items():
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", name, "link", "set", link, "up")
            self._start_sshd(name, address)

    def _start_sshd(self, name, address):
        key, config = self.folder / "key", self.folder / f"sshd-{name}"
        lines = {
            "ListenAddress": address,
            "HostKey": key,
            "AuthorizedKeysFile": f"{key}.pub",
            "PidFile": f"{config}.pid",
            "PermitRootLogin": "yes",
            "StrictModes": "no",
            "UsePAM": "no",
        }
        config.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        # A host name of its own, too.
        start = f"hostname {name} && exec /usr/sbin/sshd -f {config} -E {config}.log"
        subprocess.run(["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", start], check=True, timeout=120)

    def link(self, state):
        ip("-n", list(HOSTS)[1], "link", "set", "eth0", state)

    def start(self, *command, log):
        first = ["ip", "netns", "exec", next(iter(HOSTS))]
        return subprocess.Popen(
            [*first, *map(str, command)], cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )

    def run(self, *command, timeout=600):
        with (self.folder / "log").open("w+") as log:
            process = self.start(*command, log=log)
            try:
                status = process.wait(timeout)
            finally:
                self.stop_training()
            log.seek(0)
            return status, log.read()

    def stop_training(self):
        """End what a run has left in either namespace; sshd stays."""
        for name in HOSTS:
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=120).stdout
            for pid in map(int, listed.split()):
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_text()
                    if "fairseq_posenc" in command or "pdsh" in command:
                        os.kill(pid, signal.SIGKILL)
                except (FileNotFoundError, ProcessLookupError):
                    continue

    def disconnect(self):
        for name in HOSTS:
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, timeout=120).stdout
            for pid in map(int, listed.split()):
                os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=120)
            shutil.rmtree(Path("/etc/netns", name), ignore_errors=True)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    hosts = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        hosts.connect()
    except subprocess.CalledProcessError as error:
        hosts.disconnect()
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
    yield hosts
    hosts.disconnect()


def training(hosts, data, save_dir, updates, *flags):
    """The command of examples/multi_node; its options go through pdsh's unquoted command line."""
    options = [option.replace("(0.9,0.98)", "0.9,0.98") for option in OPTIONS]
    flags = ("--distributed-timeout", TIMEOUT, "--save-interval-updates", 10, "--keep-interval-updates", 1, *flags)
    script = ROOT / "examples" / "multi_node" / "pdsh.sh"
    return ["bash", script, hosts.hostfile, data, *options, "--save-dir", save_dir, "--max-update", updates, *flags]


def saved(save_dir):
    return load_checkpoint(str(save_dir / "checkpoint_last.pt"))["optimizer_history"][-1]["num_updates"]


def test_a_run_survives_the_loss_of_a_host(hosts, english_data_bin, tmp_path):
    save_dir = tmp_path / "checkpoints"
    with (tmp_path / "log").open("w+") as log:
        process = hosts.start(*training(hosts, english_data_bin, save_dir, 10**6), log=log)
        try:
            deadline = time.monotonic() + 600
            while not (save_dir / "checkpoint_last.pt").exists():
                assert process.poll() is None, (tmp_path / "log").read_text()[-9000:]
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-9000:]
                time.sleep(0.2)
            hosts.link("down")
            assert process.wait(timeout=TIMEOUT + 300) != 0
        finally:
            hosts.stop_training()
            hosts.link("up")
    output = (tmp_path / "log").read_text()
    assert "Process 0 has lost another process" in output
    assert "When it is fixed, the same command continues" in output

    reached = saved(save_dir)
    status, output = hosts.run(*training(hosts, english_data_bin, save_dir, reached + 5))
    assert status == 0, output
    curve = Training(output, save_dir).curve
    assert list(curve) == list(range(reached + 1, reached + 6))
    assert saved(save_dir) == reached + 5
