: /work/.psbx-sync/
# Puts what an equal build made in place: /work/.psbx-sync/$NAME, packed. Either all of it or nothing.
# D: the folder. OUTS: what was made, one a line.
set -o pipefail
stage=/work/.psbx-sync/$NAME.d
put=()
back() {
  local at
  for ((at = ${#put[@]} - 1; at >= 0; at--)); do
    rm -rf -- "${put[at]}"
    if [ -e "$stage/old/$at" ] || [ -L "$stage/old/$at" ]; then mv -T -- "$stage/old/$at" "${put[at]}"; fi
  done
  rm -rf -- "$stage" "/work/.psbx-sync/$NAME"
  echo "what an equal build made does not fit: $1" >&2
  exit 91
}
cd -P -- "/work/$D" || exit 90
mkdir -p "$stage/new" "$stage/old" || back "no room"
tar -x -p --numeric-owner -f "/work/.psbx-sync/$NAME" -C "$stage/new" || back "it cannot be unpacked"
while IFS= read -r out; do
  above=$(dirname -- "$out")
  mkdir -p -- "$above" || back "$out"
  above=$(realpath -e -- "$above") || back "$out"
  case "$above/" in /work/*) ;; *) back "\`$out\` leads out of /work" ;; esac
  at=${#put[@]}
  if [ -e "$out" ] || [ -L "$out" ]; then mv -T -- "$out" "$stage/old/$at" || back "$out"; fi
  put+=("$out")
  mv -T -- "$stage/new/$out" "$out" || back "$out"
done <<<"$OUTS"
rm -rf -- "$stage" "/work/.psbx-sync/$NAME"
