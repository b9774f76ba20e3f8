: /work/.psbx-sync/
# Prints what takes up room in a box, piece by piece, so that what is known can be told while the rest is measured.
export LC_ALL=C
for path in /work / /tmp /dev/shm; do
  df -P -k -- "$path" 2>/dev/null | while read -r _ size used free _; do
    case $size in *[!0-9]* | '') ;; *) echo "fs|$(stat -c %d -- "$path")|$size|$used|$free|$path" ;; esac
  done
done
echo 'end|filesystems'
sizes() {
  local kind=$1 least=$2 kb name
  du -x -s -k -0 -- "${@:3}" 2>/dev/null | head -z -n 5000 | while IFS=$'\t' read -r -d '' kb name; do
    if [ "$kb" -ge "$least" ]; then printf '%s|%s|%s\n' "$kind" "$kb" "${name//[$'\n\r']/?}"; fi
  done
  echo "end|$kind"
}
shopt -s nullglob dotglob
GLOBIGNORE=/work/.psbx-sync
sizes work 0 /work/*
unset GLOBIGNORE
shopt -s nullglob dotglob
caches=()
for home in /root /home/user; do
  for cache in .cache .npm .yarn .pnpm-store .local/share/pnpm .cargo/registry .cargo/git .gradle/caches .m2/repository \
    go/pkg .rustup; do
    if [ -d "$home/$cache" ]; then caches+=("$home/$cache"); fi
  done
done
for cache in /var/cache/apt /var/lib/apt/lists; do
  if [ -d "$cache" ]; then caches+=("$cache"); fi
done
sizes caches 1 "${caches[@]}"
sizes temp 1024 /tmp/* /var/tmp/* /dev/shm/*
