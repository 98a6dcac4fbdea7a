#!/usr/bin/env bash
# Train on every host of a hostfile by ssh, started on one of them:
#   bash examples/multi_node/pdsh.sh hosts --config-dir examples/pretraining --config-name huang2021_large task.data=/data/bin \
#       checkpoint.finetune_from_model=/shared/roberta-large-m4m/model.pt
# Needs pdsh here, and ssh from here to every host (this one included) without a password. Every host has this folder, the
# environment and the data at the same paths. DEEPSPEED_CONFIG is the preset or file (default zero0).
set -euo pipefail
hostfile=$1
shift
if grep -nE '^[[:space:]]*-' "$hostfile" >&2; then
  echo "pdsh.sh: ssh would take these hosts of $hostfile for options: correct their names" >&2
  exit 2
fi
master=$(awk '!/^#/ && NF { print $1; exit }' "$hostfile")
# ssh to a host that is gone would wait for ever: give up after 15 s without an answer.
export PDSH_SSH_ARGS_APPEND="${PDSH_SSH_ARGS_APPEND:-} -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
exec deepspeed --hostfile "$hostfile" --master_addr "${MASTER_ADDR:-$master}" --master_port "${MASTER_PORT:-29500}" \
    --module fairseq_posenc.train --deepspeed-config "${DEEPSPEED_CONFIG:-zero0}" "$@"
