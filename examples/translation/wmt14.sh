#!/usr/bin/env bash
# WMT'14 English-German or English-French as a data-bin with one vocabulary of 32,768 pieces:
#
#     bash examples/translation/wmt14.sh de DIR
#
# Downloads about 1.7 GB (de) or 6 GB (fr) into DIR/archives, and continues when it is started again. An archive that is
# there already, perhaps a copy of your own, is checked and not downloaded. Validation is newstest2013, the test set newstest2014
# in full; sacreBLEU downloads both and checks them itself.
set -euo pipefail
TARGET=${1:?de or fr} DIR=${2:?a folder}
HERE=$(cd "$(dirname "$0")" && pwd)
[[ $TARGET == de || $TARGET == fr ]] || { echo "wmt14.sh: $TARGET: name de or fr" >&2; exit 2; }
STATMT=https://www.statmt.org

# path below $STATMT, SHA-256, languages. The first three sums are those that TensorFlow Datasets has for these files.
# "-": no published sum is known to us. The sum of what you get is then written into DIR/archives/SHA256SUMS; compare it with
# another copy's, and it is checked from then on.
ARCHIVES="
wmt13/training-parallel-europarl-v7.tgz 0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7 de,fr
wmt13/training-parallel-commoncrawl.tgz c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5 de,fr
wmt14/training-parallel-nc-v9.tgz cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485 de,fr
wmt13/training-parallel-un.tgz - fr
wmt10/training-giga-fren.tar - fr
"

fetch() { # PATH SUM
    local file=$DIR/archives/${1##*/} sums=$DIR/archives/SHA256SUMS sum=$2
    if [[ ! -f $file ]]; then
        curl -fL -C - -o "$file.part" "$STATMT/$1" || { echo "wmt14.sh: $STATMT/$1 cannot be downloaded" >&2; exit 1; }
        mv "$file.part" "$file"
    fi
    if [[ $sum == - ]]; then
        grep -qs " ${1##*/}\$" "$sums" || (cd "$DIR/archives" && sha256sum "${1##*/}" >> SHA256SUMS)
        sum=$(awk -v name="${1##*/}" '$2 == name {print $1}' "$sums")
    fi
    echo "$sum  $file" | sha256sum -c --quiet - || { echo "wmt14.sh: $file is damaged: remove it and start again" >&2; exit 1; }
}

mkdir -p "$DIR/archives" "$DIR/raw" "$DIR/text"
while read -r path sum languages; do
    [[ ,$languages, == *,$TARGET,* ]] || continue
    fetch "$path" "$sum"
    done_mark=$DIR/raw/.${path##*/}.$TARGET
    if [[ $path == *giga* ]]; then wanted="*release2.fixed*"; else wanted="*.$TARGET-en.*"; fi
    [[ -f $done_mark ]] || { tar -xf "$DIR/archives/${path##*/}" -C "$DIR/raw" --wildcards "$wanted"; touch "$done_mark"; }
done <<< "$(echo "$ARCHIVES" | sed '/^$/d')"

for language in en "$TARGET"; do
    find "$DIR/raw" -type f \( -name "*.$TARGET-en.$language" -o -name "*release2.fixed.$language*" \) | LC_ALL=C sort |
        while read -r file; do if [[ $file == *.gz ]]; then zcat "$file"; else cat "$file"; fi; done > "$DIR/text/train.$language"
done
for part in valid:wmt13:src:en "valid:wmt13:ref:$TARGET" test:wmt14/full:src:en "test:wmt14/full:ref:$TARGET"; do
    IFS=: read -r split name side language <<< "$part"
    sacrebleu -t "$name" -l "en-$TARGET" --echo "$side" > "$DIR/text/$split.$language"
done
fairseq-posenc prepare "$DIR/text/train.en" "$DIR/text/train.$TARGET" --document-per-line --out "$DIR/vocabulary" --vocab-size 32768
[[ -d $DIR/data-bin ]] ||
    python "$HERE/prepare.py" "$DIR/text" --vocabulary "$DIR/vocabulary" -s en -t "$TARGET" --out "$DIR/data-bin"
