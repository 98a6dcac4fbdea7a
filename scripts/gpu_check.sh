#!/usr/bin/env bash
# Checks this package on one GPU, in at most 8 minutes and without network. The other parts run after one has failed or is late.
#   bash scripts/gpu_check.sh [--wheels DIR] [--out DIR]
#   bash scripts/gpu_check.sh --on-cpu             rehearses all of it without a GPU: on the CPU, and with gloo
# It uses $PYTHON, or .venv's Python, or python3, which has PyTorch with CUDA and this package. With --wheels it makes an
# environment in --out instead, from that Python's packages, the wheels in DIR, and this package. docs/performance.md lists them.
# --out (default: gpu-check) gets a log per part, and the benchmark's records and tables.
set -uo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

refuse() {
  echo "gpu_check.sh: $*" >&2
  exit 2
}

wheels='' out=gpu-check on_cpu=
while [ $# -gt 0 ]; do
  case $1 in
    --on-cpu) on_cpu=yes ;;
    --wheels | --out)
      [ $# -gt 1 ] || refuse "$1 needs a folder"
      if [ "$1" = --out ]; then out=$2; else wheels=$2; fi
      shift
      ;;
    *) refuse "unknown option $1: there are --wheels DIR, --out DIR and --on-cpu" ;;
  esac
  shift
done
python=${PYTHON:-}
[ -n "$python" ] || { [ -x "$project/.venv/bin/python" ] && python=$project/.venv/bin/python; } || python=python3
command -v "$python" >/dev/null || refuse "$python is not there: PYTHON=/path/to/python names one that has PyTorch with CUDA"
export GPU_TESTS_ON=cuda CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" PYTHONWARNINGS=ignore
if [ -n "$on_cpu" ]; then
  export GPU_TESTS_ON=cpu CUDA_VISIBLE_DEVICES=
else
  found=$("$python" -c 'import torch; assert torch.cuda.is_available(), f"PyTorch {torch.__version__}"' 2>&1) ||
    refuse "$python finds no GPU (${found##*$'\n'}). To rehearse on the CPU: --on-cpu"
fi
mkdir -p "$out" && out=$(cd "$out" && pwd) || refuse "--out $out cannot be made"

if [ -n "$wheels" ]; then
  compgen -G "$wheels/*.whl" >/dev/null || refuse "--wheels $wheels holds no wheels"
  "$python" -m venv --system-site-packages --without-pip "$out/venv" || refuse "$python cannot make an environment in $out/venv"
  # If that Python is in an environment, --system-site-packages does not include its packages.
  parent=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  python=$out/venv/bin/python
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$parent')" >"$site/parent.pth"
  "$python" -m pip install --quiet --no-index --no-deps "$wheels"/*.whl &&
    "$python" -m pip install --quiet --no-index --no-deps --no-build-isolation -e "$project" ||
    refuse "the wheels in $wheels cannot be installed: see above"
fi
missing=$("$python" - <<'EOF'
from importlib.util import find_spec

modules = {"fairseq": "fairseq==0.12.2", "hydra": "hydra-core==1.3.8", "omegaconf": "omegaconf==2.3.1", "sacrebleu": "",
           "antlr4": "antlr4-python3-runtime==4.9.3", "bitarray": "", "regex": "", "pydantic": "", "sentencepiece": "",
           "backports.zstd": "", "tensorboard": "", "tabulate": "", "tqdm": "", "pytest": "", "fairseq_posenc": "this package"}
print(*(pip or name for name, pip in modules.items() if find_spec(name.partition(".")[0]) is None), sep=", ")
EOF
) || refuse "$python does not run"
[ -z "$missing" ] || refuse "$python lacks $missing. Without network: --wheels DIR, see docs/performance.md"

limit=470 # seconds, of all parts together
[ -z "$on_cpu" ] || limit=7200
SECONDS=0 failed=0

part() { # NAME SECONDS COMMAND...: reports the last line of what it printed; the log has the rest
  local name=$1 log=$out/$1.log start=$SECONDS left=$((limit - SECONDS)) status word last
  left=$((left < $2 || limit > 1000 ? left : $2))
  timeout --kill-after=10 $((left > 1 ? left : 1)) "${@:3}" >"$log" 2>&1
  status=$?
  last=$(tr '\r' '\n' <"$log" | grep -v '^[[:space:]]*$' | tail -1 | tr -d '=' | sed 's/^ *//')
  case $status in
    0) if [[ $last == *skipped* && $last != *passed* ]]; then word=skipped; else word=ok; fi ;;
    124 | 137) word=LATE last="stopped after $left s: $last" ;;
    *) word=FAILED ;;
  esac
  printf -v word '%-8s%-24s%5d s  %s' "$word" "$name" $((SECONDS - start)) "${last:0:150}"
  if [ $status -ne 0 ]; then
    word+=$'\n'$(grep -E '^(FAILED|ERROR|E  )' "$log" | head -5 | cut -c1-200 | sed 's/^/        /')
  fi
  echo "$word" # at once, as others report meanwhile
  return $status
}

tests() { "$python" -m pytest -q -p no:cacheprovider -m gpu --rootdir "$project" -c "$project/pyproject.toml" "$@"; }

bench() { # NAME FLAG...
  local model=(--size base --layers 12 --vocab-size 50265 --batch-size 32 --bf16 --repeats 10)
  [ "$GPU_TESTS_ON" = cuda ] || model=(--size tiny --layers 1 --tokens 16 --repeats 2)
  "$python" -m fairseq_posenc.cli bench --device "$GPU_TESTS_ON" "${model[@]}" --out "$out/$1" "${@:2}"
}

compile() { # SCHEME...: the kernels, for this GPU; what is timed finds them compiled
  local architecture
  architecture=$("$python" -c 'import torch; print("%d%d" % torch.cuda.get_device_capability())') &&
    "$python" "$project/tests/core/attention/compile_band.py" "$architecture" "$@" --jobs "$(($(nproc) / 2 + 1))"
}

export -f tests bench compile
export python project out

"$python" - <<'EOF'
import platform, torch

gpu = torch.cuda.get_device_name() + f", {torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB" \
    if torch.cuda.is_available() else "no GPU: a rehearsal on the CPU"
print(f"{gpu}; Python {platform.python_version()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
EOF

# On a GPU the tests run in parallel, since they wait for Python and compilers most of the time; timings run alone.
timed=(tisa t5 tupe_r shaw m4 m4m) parts=()
if [ -z "$on_cpu" ]; then
  part kernels 240 bash -c 'compile "$@"' - "${timed[@]}" &
  parts+=($!)
fi
for file in "$project"/tests/gpu/test_*.py; do
  name=$(basename "$file" _on_gpu.py)
  if [ -n "$on_cpu" ]; then
    part "${name#test_}" 240 bash -c "tests '$file'" || failed=1
  else
    part "${name#test_}" 240 bash -c "tests '$file'" &
    parts+=($!)
  fi
done
for process in "${parts[@]}"; do
  wait "$process" || failed=1
done
part bench-against-stock 60 bash -c 'bench bench-against-stock --schemes absolute,tisa' || failed=1
schemes=$(IFS=, && echo "${timed[*]}")
part bench 200 bash -c "bench bench --schemes $schemes --baseline absolute --attention-backend auto,band" || failed=1
# A family without attention dropout, which flex does not have; on a CPU it has no gradients.
fused=auto,flex lengths=512,8192
[ -z "$on_cpu" ] || fused=auto lengths=16
windows="--family modernbert --baseline rope --schemes rope,tisa,tupe_r --attention-backend $fused --tokens $lengths"
part bench-windows 120 bash -c "bench bench-windows $windows" || failed=1
for results in "$out"/bench*/results.md; do
  [ ! -e "$results" ] || { echo && cat "$results"; }
done
echo "$SECONDS s in all; logs and records are in $out"
exit $failed
