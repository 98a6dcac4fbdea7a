#!/usr/bin/env bash
# Sets up .venv where needed and runs the tests: all but the slow ones, with one process more than there are cores, and at most four.
# Arguments go to pytest instead: bash scripts/test.sh tests/plugin/test_hook.py -k disabled
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup_venv.sh dev plots hf deepspeed triton docs
. .venv/bin/activate
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # the tensors are small, and each core has a test of its own
[ $# -gt 0 ] || set -- -m "${MARKERS:-not slow and not thorough and not gpu}" \
  --numprocesses $(($(python -c 'import os; print(os.cpu_count())') + 1)) --maxprocesses 4 --dist loadfile --no-loadscope-reorder
exec python -m pytest "$@"
