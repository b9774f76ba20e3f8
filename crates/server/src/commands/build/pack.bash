: /work/.psbx-sync/
# Packs what a build made into /work/.psbx-sync/$NAME, and prints how many bytes that is.
# D: the folder. OUTS: what was made, one a line. MAX: the most bytes.
set -o pipefail
cd -P -- "/work/$D" || exit 90
outs=()
while IFS= read -r out; do
  if [ ! -e "$out" ] && [ ! -L "$out" ]; then
    echo "the command made no \`$out\`" >&2
    exit 92
  fi
  above=$(realpath -e -- "$(dirname -- "$out")") || exit 92
  case "$above/" in /work/*) ;; *) echo "\`$out\` leads out of /work" >&2; exit 92 ;; esac
  outs+=("$out")
done <<<"$OUTS"
tar -c -S --numeric-owner -f - -- "${outs[@]}" | gzip -1 | head -c "$((MAX + 1))" >"/work/.psbx-sync/$NAME"
failed=$?
bytes=$(stat -c %s "/work/.psbx-sync/$NAME") || exit 91
if [ "$bytes" -gt "$MAX" ]; then
  rm -f "/work/.psbx-sync/$NAME"
  echo "it is larger than $((MAX >> 20)) MB packed" >&2
  exit 92
fi
if [ "$failed" != 0 ]; then
  rm -f "/work/.psbx-sync/$NAME"
  exit 91
fi
echo "$bytes"
