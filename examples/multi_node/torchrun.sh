#!/usr/bin/env bash
# Train on several hosts without ssh: start the same line on each of them.
#   NODES=4 NODE_RANK=0 MASTER_ADDR=node1 bash examples/multi_node/torchrun.sh --config-dir … --config-name … task.data=/data/bin
# NODE_RANK counts the hosts from 0; MASTER_ADDR is host 0. GPUS is the number of processes per host (default: its GPUs).
set -euo pipefail
exec torchrun --nnodes "$NODES" --node-rank "$NODE_RANK" --nproc-per-node "${GPUS:-gpu}" \
    --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
    -m fairseq_posenc.train --deepspeed-config "${DEEPSPEED_CONFIG:-zero0}" "$@"
