#!/usr/bin/env bash
# Sets up .venv where needed and tries every command with careless and hostile flags and files; arguments go to tests/fuzz:
#   bash scripts/fuzz.sh --seed 1 --seconds 600
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup_venv.sh dev plots hf deepspeed triton
OMP_NUM_THREADS=1 exec .venv/bin/python tests/fuzz "$@"
