#!/usr/bin/env bash
# From text to masked language models by the number of words seen, as BabyLM's shared task compares them; see README.md.
#   bash examples/babylm/train.sh TEXT OUT                  minutes on two cores
#   bash examples/babylm/train.sh TEXT OUT strict-small     10 epochs of 10M words, 12 layers of width 384, on a GPU
#   POSITIONS=rope bash examples/babylm/train.sh TEXT OUT   another positional encoding
#   FLAGS=--masked-next-token bash examples/babylm/train.sh TEXT OUT   more flags
# TEXT is a file or a folder, as for 'fairseq-posenc prepare'. The same command continues one that was killed.
set -euo pipefail
[ $# -ge 2 ] || {
  sed -n '2,7s/^# \?//p' "$0" >&2
  exit 2
}
text=$1 out=$2 budget=${3:-tiny}
positions=${POSITIONS:-deberta(buckets=32, projections=content)}
case $budget in
tiny)
  vocabulary=2048 epochs=2 tokens=64 batch=64
  flags=(--arch roberta_posenc_tiny --lr 4e-3 --dropout 0 --attention-dropout 0)
  ;;
strict-small)
  vocabulary=16384 epochs=10 tokens=128 batch=256
  flags=(--arch roberta_posenc --encoder-layers 12 --encoder-embed-dim 384 --encoder-ffn-embed-dim 1280
    --encoder-attention-heads 6 --lr 1e-3 --bf16)
  ;;
*)
  echo "train.sh: the budget is tiny or strict-small, and not $budget" >&2
  exit 2
  ;;
esac

read -ra more <<<"${FLAGS:-}"

mkdir -p "$out"
fairseq-posenc prepare "$text" --out "$out/data-bin" --vocab-size "$vocabulary" --valid-fraction 0.02

# "1M:UPDATES 2M:UPDATES …": when 1M, 2M, … 10M, 20M, … words have been seen, and the end. A word begins with a piece in ▁, and a sample with <s>.
milestones=$(
  python - "$out/data-bin" "$epochs" "$(((tokens - 1) * batch))" <<'EOF'
import sys
from pathlib import Path
import numpy as np
from fairseq.data import Dictionary, data_utils
folder, epochs, per_update = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
dictionary = Dictionary.load(str(folder / "dict.txt"))
train = data_utils.load_indexed_dataset(str(folder / "train"), dictionary)
ids = np.memmap(folder / "train.bin", train._index.dtype, "r")
words = np.isin(ids, [i for i, symbol in enumerate(dictionary.symbols) if symbol.startswith("▁")]).sum()
marks = [m for m in (*range(1, 10), *range(10, 101, 10)) if m * 10**6 < epochs * words]
print(*(f"{m}M:{round(m * 10**6 / words * len(ids) / per_update)}" for m in marks), f"end:{epochs * len(ids) // per_update}")
EOF
)
last=${milestones##*:}

for milestone in $milestones; do
  name=${milestone%:*} updates=${milestone#*:}
  [ ! -e "$out/hf/$name/README.md" ] || continue
  FAIRSEQ_POSENC_SAVE_SECONDS=600 fairseq-train "$out/data-bin" --task masked_lm --criterion masked_lm \
    --positions "$positions" "${flags[@]}" "${more[@]}" --tokens-per-sample "$tokens" --batch-size "$batch" \
    --mask-prob 0.4 --mask-prob-end 0.15 --mask-prob-updates "$last" \
    --optimizer adam --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1 \
    --lr-scheduler polynomial_decay --total-num-update "$last" --warmup-updates "$((last / 20 + 1))" \
    --max-update "$updates" --seed 1 --distributed-world-size 1 --save-dir "$out/checkpoints" --no-epoch-checkpoints --log-interval 50
  fairseq-posenc export-hf "$out/checkpoints/checkpoint_last.pt" --out "$out/hf/$name"
done
echo "The models are in $out/hf. To score the last: fairseq-posenc pairs $out/hf/end --data BLIMP --out $out/pairs"
