#!/usr/bin/env bash
# Creates .venv-hf4 and .venv-hf5 in the project's root: PyTorch and transformers 4 or 5, as a user of an export has them, and
# neither fairseq nor fairseq_posenc. The tests of exports run in them. Does nothing if that is already done.
#   bash scripts/setup_hf_venvs.sh
#   bash scripts/setup_hf_venvs.sh 5 makes that of transformers 5 alone
#   PYTHON=python3.12 bash scripts/setup_hf_venvs.sh to choose the interpreter
# Then: bash scripts/test.sh -m 'not gpu' tests/huggingface/test_export.py
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "setup_hf_venvs.sh: no $python found. Name another: PYTHON=/path/to/python3.12 bash $0" >&2; exit 1; }

setup() { # folder, requirement
  local stamp=$1/installed-$2
  [ ! -e "$stamp" ] || return 0
  echo "Installing $2 into $1; the first time takes minutes ..." >&2
  if [ ! -x "$1/bin/python" ]; then
    if [ -n "$(ls -A "$1" 2>/dev/null)" ] && [ ! -e "$1/pyvenv.cfg" ]; then
      echo "setup_hf_venvs.sh: $1 is not a Python environment. Move it away." >&2
      exit 1
    fi
    "$python" -m venv --clear "$1"
  fi
  # accelerate is what Trainer needs.
  "$1/bin/python" -m pip install --quiet 'torch>=2.6,<2.14' "$2" accelerate
  touch "$stamp"
}
[ $# -gt 0 ] || set -- 4 5
for version; do
  case $version in
    4) setup .venv-hf4 'transformers==4.57.*' ;;
    5) setup .venv-hf5 'transformers==5.*' ;;
    *) echo "setup_hf_venvs.sh: $version: 4 or 5" >&2; exit 1 ;;
  esac
done
