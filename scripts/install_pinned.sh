#!/usr/bin/env bash
# Installs this package with the versions in scripts/pinned.txt into the environment of $PYTHON (default: python3), and checks that
# fairseq finds it. The Dockerfile runs this; elsewhere, a new environment is best:
#   python3 -m venv .venv-pinned && PYTHON=.venv-pinned/bin/python bash scripts/install_pinned.sh
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)') # found from any folder
pip() { "$python" -m pip install --quiet --no-cache-dir --disable-pip-version-check --root-user-action ignore "$@"; }
source=$(mktemp -d) # so that building the wheel leaves nothing in the project's folder
trap 'rm -rf "$source"' EXIT
(cd "$project" && cp -r fairseq_posenc startup setup.py pyproject.toml README.md LICENSE "$source")
pip --constraint "$project/scripts/pinned.txt" "$source[fairseq,plots,compare,glue,hf]"
pip --no-deps fairseq==0.12.2
cd / # so that the installed package is found, and not the folder's
"$python" -c 'import fairseq; from fairseq.models import ARCH_MODEL_REGISTRY; assert "roberta_tisa" in ARCH_MODEL_REGISTRY'
"$python" -m fairseq_posenc.cli --version
