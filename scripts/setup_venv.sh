#!/usr/bin/env bash
# Creates .venv in the project's root and installs fairseq_posenc into it; does nothing if that is already done.
#   bash scripts/setup_venv.sh [EXTRA...]          extras of setup.py, such as plots compare hf
#   PYTHON=python3.12 bash scripts/setup_venv.sh   to choose the interpreter
# Then: . .venv/bin/activate
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "setup_venv.sh: $*" >&2
  exit 1
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

works() { .venv/bin/python -m pip --version >/dev/null 2>&1; }

suitable() { [[ $(version_of "$1") =~ ^3\.1[0-3]$ ]]; }

python=${PYTHON:-}
if [ -z "$python" ]; then
  candidates=(python3 python3.12 python3.11 python3.10 python3.13)
  ! works || candidates=(.venv/bin/python "${candidates[@]}")
  for candidate in "${candidates[@]}"; do
    if suitable "$candidate"; then
      python=$candidate
      break
    fi
  done
fi
suitable "$python" || fail "no Python 3.10 to 3.13 found${PYTHON:+: $PYTHON is not one}." \
  "Install one, or set its path: PYTHON=/path/to/python3.12 bash $0"
version=$(version_of "$python")

# One stamp per set of extras, named after everything that decides what is installed, and written last: after a kill
# there is none, and pip continues from what is installed.
key=$({ echo "$version $PWD $*"; cat setup.py startup/*.*; } |
  "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:16])')
stamp=.venv/installed-$key
[ ! -e "$stamp" ] || exit 0

command -v gcc >/dev/null ||
  fail "no gcc found, which compiles fairseq when it is installed. On Debian or Ubuntu: apt-get install build-essential"
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$headers/Python.h" ] ||
  fail "no $headers/Python.h, which fairseq is compiled with. On Debian or Ubuntu: apt-get install python$version-dev"

if ! works || [ "$(version_of .venv/bin/python)" != "$version" ]; then
  if [ -n "$(ls -A .venv 2>/dev/null)" ] && ! compgen -G '.venv/installed-*' >/dev/null; then
    fail ".venv cannot be used with Python $version, and was not made by this script. Move it away, or choose its own Python: PYTHON=…"
  fi
  mkdir -p .venv
  touch .venv/installed-begun # first to come and last to stay, so that what a kill leaves is known for this script's
  find .venv -mindepth 1 ! -name installed-begun -delete
  "$python" -m venv .venv
fi
extras=$(IFS=,; set -- fairseq "$@"; echo "$*")
echo "Installing fairseq_posenc[$extras] into .venv with Python $version; the first time takes minutes." >&2
.venv/bin/python -m pip install -e ".[$extras]"
.venv/bin/python -m pip install --quiet --no-deps fairseq==0.12.2 # setup.py explains why it is not a requirement
touch "$stamp"
