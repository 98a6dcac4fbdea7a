#!/usr/bin/env bash
# Creates .venv in the project's root and installs fairseq_posenc into it; does nothing where that is already done.
#   bash scripts/setup_venv.sh [EXTRA...]        extras of setup.py: deepspeed hf plots dev
#   PYTHON=python3.12 bash scripts/setup_venv.sh to choose the interpreter (3.10 to 3.13)
# Then: . .venv/bin/activate
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "setup_venv.sh: $*" >&2; exit 1; }

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "no $python found. Install Python 3.10 to 3.13, or name it: PYTHON=/path/to/python3.12 bash $0"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "$python does not run"
case $version in
  3.1[0-3]) ;;
  *) fail "$python is Python $version; fairseq_posenc needs 3.10 to 3.13. Name another: PYTHON=/path/to/python3.12 bash $0" ;;
esac

# One stamp per set of extras, named after everything that decides what is installed and written last: after a kill midway
# there is no stamp, and pip goes on from what is already there.
key=$( { echo "$version $PWD $*"; cat setup.py; cat startup/*; } | "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:16])')
stamp=.venv/installed-$key
[ ! -e "$stamp" ] || exit 0

command -v gcc >/dev/null || fail "no gcc found: fairseq $(sed -n 's/.*fairseq==\([0-9.]*\).*/\1/p' setup.py) is compiled when it is installed. Install one, e.g. apt-get install build-essential"
if [ -e .venv ] && [ "$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" != "$version" ]; then
  echo "setup_venv.sh: .venv does not hold a working Python $version; making it anew" >&2
  rm -rf .venv
fi
[ -x .venv/bin/pip ] || "$python" -m venv --clear .venv
extras=$(IFS=,; echo "$*")
echo "Installing fairseq_posenc${extras:+[$extras]} into .venv with Python $version; the first time takes minutes ..." >&2
# pip 24.1 and later refuse the metadata of omegaconf 2.0.6, which fairseq needs.
.venv/bin/python -m pip install --quiet 'pip<24.1'
.venv/bin/python -m pip install --quiet -e ".${extras:+[$extras]}"
touch "$stamp"
