: /work/.psbx-sync/
# Prints a checksum over the inputs of a build: what is in the folder (but not what the build makes), and the tools.
# D: the folder. SKIP: patterns of what the build makes, one a line. MOST: how many files there may be.
# INSTALL: 1 when only packages are installed, for which the project's own version means nothing.
set -o pipefail
export LC_ALL=C
cd -P -- "/work/$D" 2>/dev/null || { echo "there is no folder /work/$D" >&2; exit 90; }
case "$PWD/" in /work/*) ;; *) echo "/work/$D leads out of /work" >&2; exit 90 ;; esac
mkdir -p /work/.psbx-sync
skip=(-path ./.psbx-sync -o -name .git)
while IFS= read -r pattern; do skip+=(-o -path "./$pattern"); done <<<"$SKIP"
found() { find . \( "${skip[@]}" \) -prune -o "$@"; }
count=$(found -type f -printf . | wc -c) || exit 91
if [ "$count" -gt "$MOST" ]; then
  echo "there are $count files in /work/$D, and a build compares at most $MOST" >&2
  exit 90
fi
own=()
if [ "$INSTALL" = 1 ] && command -v node >/dev/null; then
  own=(! -path ./package.json ! -path ./package-lock.json)
fi
(
  set -e
  found ! -path . "${own[@]}" -printf '%y %m %P -> %l\0' | sort -z
  found -type f "${own[@]}" -print0 | sort -z | xargs -0 -r sha256sum -z --
  if [ "${#own[@]}" -gt 0 ]; then
    node -e '
      for (const name of ["package.json", "package-lock.json"]) {
        let text;
        try { text = require("fs").readFileSync(name, "utf8"); } catch { console.log(name, "none"); continue; }
        const json = JSON.parse(text);
        delete json.version;
        if (json.packages && json.packages[""]) delete json.packages[""].version;
        console.log(name, JSON.stringify(json));
      }'
  fi
  git -c safe.directory='*' rev-parse HEAD 2>/dev/null || true
  uname -m
  cat /etc/os-release 2>/dev/null || true
  for tool in bash make cmake ninja gcc g++ cc c++ clang ld node npm npx pnpm yarn bun deno python python3 pip uv poetry \
    ruby bundle php composer java javac mvn gradle dotnet go cargo rustc rustup swift zig tsc esbuild vite webpack; do
    place=$(command -v "$tool") || continue
    stat -L -c "$tool %s %Y" -- "$place"
  done
  for tool in node python3 gcc; do
    place=$(command -v "$tool") || continue
    { timeout 10 "$tool" --version 2>&1 || true; } | head -n 1
  done
  ls ~/.rustup/toolchains 2>/dev/null || true
) | sha256sum | cut -c 1-64 || { echo "files in /work/$D changed while they were read, or cannot be read" >&2; exit 91; }
