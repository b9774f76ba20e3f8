# shellcheck shell=bash
#
# The CRIU half of scripts/bootstrap, which reads this file in: finding a CRIU
# that is new enough, or unpacking one into a private prefix. It uses that
# script's settings and helpers (CRIU_MIN, PREFIX, CRIU_ROOT, work, say, warn,
# quietly, version_ge, the apt functions) and takes no lock of its own.

# The version that the CRIU at path $1 says it has; nothing if it does not run.
criu_version() {
	if [ -x "$1" ]; then { "$1" --version 2>/dev/null || true; } | sed -n 's/^Version: *//p'; fi
}
system_criu() { command -v criu || true; }
system_criu_good() { version_ge "$(criu_version "$(system_criu)")" "$CRIU_MIN"; }
private_criu_good() {
	[ -s "$CRIU_ROOT/VERSION" ] &&
		version_ge "$(criu_version "$CRIU_ROOT/bin/criu")" "$CRIU_MIN"
}

# Each Debian archive among the machine's package sources, as `codename uri`.
# apt itself reads its source files (of either format) and the signed Release
# files, so no host is named here and nothing is guessed from file names.
debian_archives() {
	# The $( ) are apt's own placeholders.
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(CODENAME)|$(REPO_URI)' \
		'Created-By: Packages' 2>/dev/null |
		awk -F'|' '$1 == "Debian" && $2 == "Debian" && $3 !~ /-/ && $4 !~ /^cdrom:/ && !seen[$4]++ {
			print $3, $4 }'
}

debian_keyring() {
	local keyring
	for keyring in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
		if [ -r "$keyring" ]; then
			echo "$keyring"
			return 0
		fi
	done
	return 1
}

# apt with its state, cache and sources under $work: the machine's own package
# database is neither read nor written, so every dependency is downloaded.
own_apt() {
	local tool=$1
	shift
	"$tool" -c "$work/apt.conf" "$@"
}

# write_own_apt URI RELEASE SUITE...: sets own_apt up to read these suites, with
# RELEASE preferred over the others.
write_own_apt() {
	local uri=$1 release=$2 keyring suite
	shift 2
	keyring=$(debian_keyring) || return 1
	mkdir -p "$work/empty" "$work/state/lists/partial" "$work/cache/archives/partial"
	: >"$work/status"
	: >"$work/sources.list"
	for suite in "$@"; do
		printf 'deb [target=Packages signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite" \
			>>"$work/sources.list"
	done
	cat >"$work/apt.conf" <<CONF
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "$work/empty";
Dir::Etc::preferences "$work/empty/none";
Dir::Etc::preferencesparts "$work/empty";
Dir::State "$work/state";
Dir::State::lists "$work/state/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Cache::archives "$work/cache/archives";
#clear APT::Architectures;
APT::Architectures { "$(dpkg --print-architecture)"; };
APT::Default-Release "$release";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
}

# The newest CRIU that own_apt sees, if it is new enough.
own_apt_criu() {
	local version
	version=$({ own_apt apt-cache madison criu 2>/dev/null || true; } |
		awk -F'|' '{ gsub(/ /, "", $2); print $2 }' | sort -V | tail -n 1)
	if version_ge "$version" "$CRIU_MIN"; then echo "$version"; fi
}

# Finds a suite with a new enough CRIU: backports first, as those packages fit
# the machine best, then unstable. Leaves own_apt set up for it and prints
# `version suite`.
find_criu() {
	local codename uri version keyring
	keyring=$(debian_keyring) || return 1
	while read -r codename uri; do
		case $codename in
		sid) ;;
		*)
			write_own_apt "$uri" "$codename-backports" "$codename-backports" || return 1
			# A suite without backports is usual, so its failure is not shown.
			if own_apt apt-get -qq update >/dev/null 2>&1; then
				version=$(own_apt_criu)
				if [ -n "$version" ]; then
					write_own_apt "$uri" "$codename-backports" "$codename-backports" "$codename" || return 1
					quietly "reading $codename and its backports" own_apt apt-get -q update || continue
					echo "$version $codename-backports"
					return 0
				fi
			fi
			;;
		esac
		write_own_apt "$uri" sid sid || return 1
		quietly "reading Debian unstable's list (keys: $keyring)" own_apt apt-get -q update || continue
		version=$(own_apt_criu)
		if [ -n "$version" ]; then
			echo "$version sid"
			return 0
		fi
	done < <(debian_archives)
	return 1
}

# Unpacks what own_apt downloaded into $work/root and gathers into $work/new
# the program, its loader and exactly the libraries that it loads.
gather_criu() {
	local deb loader program libdirs name path
	mkdir -p "$work/root" "$work/new/bin" "$work/new/lib" "$work/new/libexec" \
		"$work/new/plugins" "$work/new/copyright" || return 1
	for deb in "$work"/cache/archives/*.deb; do
		dpkg-deb -x "$deb" "$work/root" || return 1
		# The $ are dpkg-deb's own placeholders.
		# shellcheck disable=SC2016
		dpkg-deb -W --showformat='${Package} ${Version}\n' "$deb" >>"$work/new/PACKAGES" || return 1
	done
	program=$(find "$work/root" -type f -path '*/sbin/criu' | head -n 1)
	loader=$(find "$work/root" -type f \( -name 'ld-linux*.so.*' -o -name 'ld64.so.*' \) | head -n 1)
	libdirs=$(find "$work/root" -type d -path '*/lib/*-linux-gnu*' | paste -sd :)
	if [ -z "$program" ] || [ -z "$loader" ] || [ -z "$libdirs" ]; then
		warn "the downloaded packages hold no criu, loader or libraries where they are expected"
		return 1
	fi
	cp -- "$program" "$work/new/libexec/criu" || return 1
	cp -- "$loader" "$work/new/lib/ld.so" || return 1
	"$loader" --inhibit-cache --library-path "$libdirs" --list "$program" >"$work/libraries" || return 1
	while read -r name path; do
		case $path in
		"$work"/root/*) cp -L -- "$path" "$work/new/lib/${name##*/}" || return 1 ;;
		*)
			warn "$name was not among the downloaded packages"
			return 1
			;;
		esac
	done < <(awk '$2 == "=>" { print $1, $3 }' "$work/libraries")
	# glibc loads this one by name when a thread ends, so no list shows it.
	path=$(find "$work/root" -name libgcc_s.so.1 | head -n 1)
	if [ -n "$path" ]; then cp -L -- "$path" "$work/new/lib/" || return 1; fi
	for path in "$work"/root/usr/share/doc/*/copyright; do
		name=${path%/copyright}
		cp -L -- "$path" "$work/new/copyright/${name##*/}" || return 1
	done
}

# The wrapper names its folder outright: finding it from $0 would cost every
# freeze and thaw a few processes. It keeps the machine's own configuration and
# plugins out, which may be of an older CRIU.
write_wrapper() {
	cat >"$work/new/bin/criu" <<WRAPPER || return 1
#!/bin/sh
# Written by Icebox's scripts/bootstrap: runs this folder's CRIU on its own libraries.
unset CRIU_CONFIG_FILE
export CRIU_LIBS_DIR='$CRIU_ROOT/plugins'
exec '$CRIU_ROOT/lib/ld.so' --inhibit-cache --library-path '$CRIU_ROOT/lib' '$CRIU_ROOT/libexec/criu' --no-default-config "\$@"
WRAPPER
	chmod 755 "$work/new/bin/criu" "$work/new/libexec/criu" "$work/new/lib/ld.so"
}

install_private_criu() {
	local version suite found ran
	if ! debian_keyring >/dev/null; then
		warn "no Debian archive keyring here, so Debian's CRIU could not be verified (package debian-archive-keyring)"
		return 1
	fi
	if [ -z "$(debian_archives)" ]; then refresh_lists; fi
	if [ -z "$(debian_archives)" ]; then
		warn "none of this machine's package sources is the Debian archive"
		return 1
	fi

	mkdir -p "$PREFIX"
	# Left by runs that were killed; the lock says that nobody uses them.
	rm -rf -- "$PREFIX"/.criu-new.*
	work=$(mktemp -d "$PREFIX/.criu-new.XXXXXX")
	# apt drops its rights to download, so it must be able to walk in here.
	chmod 755 "$work"
	say "looking for CRIU $CRIU_MIN or newer in Debian's suites"
	found=$(find_criu) || {
		warn "no CRIU $CRIU_MIN or newer found in Debian's suites on this machine's mirror"
		return 1
	}
	read -r version suite <<<"$found"
	say "downloading CRIU $version and its libraries from $suite"
	quietly "downloading CRIU" own_apt apt-get -q -y --download-only install "criu=$version" || return 1
	gather_criu || return 1
	ran=$("$work/new/lib/ld.so" --inhibit-cache --library-path "$work/new/lib" \
		"$work/new/libexec/criu" --version) || {
		warn "CRIU $version does not run here"
		return 1
	}
	write_wrapper || return 1
	echo "$version" >"$work/new/VERSION"

	# Every byte is on disk before the name appears: a folder of this name is
	# either whole or not there, whenever the run is cut off.
	sync -f "$work/new/VERSION"
	if [ -e "$CRIU_ROOT" ]; then mv -T -- "$CRIU_ROOT" "$work/old"; fi
	mv -T -- "$work/new" "$CRIU_ROOT"
	cleanup
	work=
	# Read by note() in scripts/bootstrap.
	# shellcheck disable=SC2034
	changed=1
	say "CRIU ${ran#Version: } is in $CRIU_ROOT ($(du -sh "$CRIU_ROOT" | cut -f 1))"
}

report_criu_check() {
	local output
	if ! output=$("$1" check 2>&1); then
		warn "boxes may freeze in RAM only: 'criu check' fails here (icebox doctor makes a trial checkpoint and tells more):"
		tail -n 5 <<<"$output" | sed 's/^/    /' >&2
	fi
}

ram_only() { warn "boxes will freeze in RAM only, not to disk: $*"; }

ensure_criu() {
	local offered
	if system_criu_good || private_criu_good; then return 0; fi
	if ! can_install; then
		ram_only "no CRIU $CRIU_MIN or newer; install the package criu if it is that new, or run scripts/bootstrap as root on Debian"
		return 0
	fi
	offered=$(apt_candidate criu)
	if version_ge "$offered" "$CRIU_MIN"; then
		if install_packages criu && system_criu_good; then
			report_criu_check "$(system_criu)"
			return 0
		fi
	fi
	if install_private_criu && private_criu_good; then
		report_criu_check "$CRIU_ROOT/bin/criu"
	else
		ram_only "no CRIU $CRIU_MIN or newer could be had from this machine's package sources"
	fi
}
