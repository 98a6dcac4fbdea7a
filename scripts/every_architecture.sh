#!/usr/bin/env bash
# Trains every …_tiny encoder for 20 updates on the quickstart's data (run scripts/quickstart.sh before) and prints the first
# and the last loss of each; ends with an error if one fails or does not learn.
#   bash scripts/every_architecture.sh                 or, on other data: bash scripts/every_architecture.sh DATA-BIN
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bash "$project/scripts/setup_venv.sh"
. "$project/.venv/bin/activate"
data=${1:-quickstart/data}
[ -e "$data/dict.txt" ] || { echo "$data is not a data-bin: run scripts/quickstart.sh first, or name one" >&2; exit 1; }
failed=0
names='from fairseq_posenc.core.families import architectures
print(*(name for name, each in architectures().items() if each.expression and each.size == "_tiny" and not each.family.causal))'
for arch in $(python -c "$names"); do
  log=$(fairseq-train "$data" --task masked_lm --criterion masked_lm --arch "$arch" --cpu --seed 1 \
    --sample-break-mode complete --tokens-per-sample 64 --batch-size 16 --optimizer adam --lr 0.002 --clip-norm 1.0 \
    --max-update 20 --log-interval 5 --log-format json --no-save --disable-validation 2>&1) || true
  losses=$(grep -o '"loss": "[0-9.]*"' <<<"$log" | grep -o '[0-9.]*' || true)
  first=$(head -1 <<<"$losses")
  last=$(sed -n 4p <<<"$losses")
  if [ -n "$last" ] && awk "BEGIN { exit !($last < $first) }"; then
    printf '%-46s loss %s -> %s\n' "$arch" "$first" "$last"
  else
    printf '%-46s FAILED\n%s\n' "$arch" "$(tail -5 <<<"$log")"
    failed=1
  fi
done
exit $failed
