#!/usr/bin/env bash
# Runs the comparison of examples/compare/gpu.yaml for so many minutes, and reports what is done. The same command continues; a run
# that was interrupted goes on from the last quarter of its updates. It has not been tried on a GPU yet.
#   bash scripts/gpu_compare.sh DATA_BIN OUT [MINUTES]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command=(fairseq-posenc compare examples/compare/gpu.yaml --data "$1" --out "$2" --claims examples/compare/claims.yaml)
status=0
timeout --signal=TERM --kill-after=60 "$((60 * ${3:-9}))" "${command[@]}" || status=$?
[ "$status" = 0 ] || [ "$status" = 124 ] || exit "$status"
"${command[@]}" --dry-run
