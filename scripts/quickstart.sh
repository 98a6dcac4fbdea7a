#!/usr/bin/env bash
# Sets up .venv where needed, pretrains two tiny models and compares them; see examples/quickstart/quickstart.py --help.
#   bash scripts/quickstart.sh                  learns from the documentation inside Python
#   bash scripts/quickstart.sh book.txt …       learns from these files
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bash "$project/scripts/setup_venv.sh" plots
exec "$project/.venv/bin/python" "$project/examples/quickstart/quickstart.py" "$@"
