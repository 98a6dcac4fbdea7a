#!/usr/bin/env bash
# Sets up .venv where needed and builds the documentation site in site/; open site/index.html with a server:
#   bash scripts/site.sh                             arguments go to mkdocs build
#   python -m http.server --directory site
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup_venv.sh docs compare hf
. .venv/bin/activate
export NO_MKDOCS_2_WARNING=1
exec python -m mkdocs build "$@"
