#!/usr/bin/env bash
# Sets up .venv where needed and runs the tests; arguments go to pytest: bash scripts/test.sh tests/test_hook.py -k disabled
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup_venv.sh dev plots hf hub deepspeed floater
. .venv/bin/activate
exec python -m pytest "$@"
