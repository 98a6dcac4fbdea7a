"""Starts the processes of a run on this host as torchrun does, but by forking, so that none has to import PyTorch again.

python tests/ranks.py PROCESSES PROGRAM ARGUMENT …
"""

import os
import signal
import sys

from fork_server import interpret
from torch.distributed import TCPStore

sys.path.pop(0)  # the folder of the tests


def main() -> list[str] | None:
    """The program that the process has to run; None in the one that has started the others and seen them end."""
    world_size, program = int(sys.argv[1]), sys.argv[2:]
    receiver, sender = os.pipe()
    ranks = {}
    for rank in range(world_size):
        pid = os.fork()
        if pid == 0:
            os.close(sender)
            port = os.read(receiver, 16).rstrip(b"\n").decode()
            os.close(receiver)
            world = {"WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "RANK": rank, "LOCAL_RANK": rank}
            meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
            os.environ.update({name: str(value) for name, value in {**world, **meeting, "TORCHELASTIC_RESTART_COUNT": 0}.items()})
            return program
        ranks[pid] = rank
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    os.write(sender, b"".join(f"{store.port:15}\n".encode() for _ in ranks))
    status = 0
    while ranks:
        pid, ended = os.wait()
        del ranks[pid]
        if ended and not status:
            status = os.waitstatus_to_exitcode(ended)
            for other in ranks:
                os.kill(other, signal.SIGTERM)
    sys.exit(status)


if __name__ == "__main__" and (program := main()):
    interpret(program)
