#!/usr/bin/env bash
# Sets up .venv where needed, and compares three positional encodings with three seeds each on your own text: minutes on two cores.
#   bash scripts/compare.sh book.txt …          the report is compared/results/report.html
#   OUT=folder bash scripts/compare.sh …        the same command again continues where it was interrupted
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -gt 0 ] || { sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
bash "$project/scripts/setup_venv.sh" compare
. "$project/.venv/bin/activate"
out=${OUT:-compared}
fairseq-posenc prepare "$@" --vocab-size 1024 --seed 1 --valid-fraction 0.05 --sample-mb 8 --out "$out/data"
fairseq-posenc compare "$project/examples/compare/short.yaml" --data "$out/data" --out "$out/results" --jobs 2
echo "report: $out/results/report.html"
