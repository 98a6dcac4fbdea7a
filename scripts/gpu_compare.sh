#!/usr/bin/env bash
# Runs the comparison of examples/compare/gpu.yaml for so many minutes, and reports what is done. The same command continues; a run
# that was interrupted loses five minutes at most. It has not been tried on a GPU yet.
#   bash scripts/gpu_compare.sh DATA_BIN OUT [MINUTES]
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ ! -e "$project/.venv" ] || . "$project/.venv/bin/activate"
plan=$project/examples/compare
command=(fairseq-posenc compare "$plan/gpu.yaml" --data "$1" --out "$2" --claims "$plan/claims.yaml")
status=0
timeout --signal=TERM --kill-after=60 "$((60 * ${3:-9}))" "${command[@]}" || status=$?
[ "$status" = 0 ] || [ "$status" = 124 ] || exit "$status"
"${command[@]}" --dry-run
