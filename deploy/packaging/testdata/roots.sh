# Sourced by the scripts beside it, which run as root in mount, network and PID namespaces of their own.
# A root is this machine's system with a file system laid over it, so that what a package changes is gone afterwards.
set -eu

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

# root NAME: makes a root at $T/NAME.
root() {
	mkdir -p "$T/over/$1/up" "$T/over/$1/work" "$T/$1"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$T/over/$1/up,workdir=$T/over/$1/work" "$T/$1"
	mount -t proc proc "$T/$1/proc"
	mount --rbind /dev "$T/$1/dev"
	# What this machine has of rdistcc is not the package's.
	rm -rf "$T/$1/etc/rdistcc" "$T/$1/usr/lib/rdistcc" "$T/$1"/usr/bin/rdistcc*
	: >"$T/$1/etc/resolv.conf"
	# Packages find a running systemd, whose commands are noted and all fail: one that fails stops no package.
	mkdir -p "$T/$1/run/systemd/system"
	printf '#!/bin/sh\necho "$*" >>/run/systemctl.log\nexit 1\n' >"$T/$1/usr/bin/systemctl"
	chmod 755 "$T/$1/usr/bin/systemctl"
	mkdir -p "$T/$1/packages"
	mount --bind "$PACKAGES" "$T/$1/packages"
}

# within NAME COMMAND...: runs a command in a root. The root is moved to and not just changed, because the kernel lets
# no process after chroot(2) make the namespaces of private trees.
within() {
	name=$1
	shift
	env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
		unshare --mount sh -c 'cd "$0" && pivot_root . . && umount -l . && cd / && exec "$@"' "$T/$name" "$@"
}

# files NAME: lists the files that were made or changed in a root, without what package managers keep for themselves.
files() {
	(cd "$T/over/$1/up" && find . \( -path ./var/lib/dpkg -o -path ./var/lib/rpm -o -path ./var/log -o -path ./var/cache -o -path ./tmp \
		-o -path ./root -o -path ./run -o -path ./usr/lib/sysimage -o -path './etc/*-' \) -prune -o \( -type f -o -type l \) -print | sort)
}

# told NAME COMMAND: says whether systemctl was told COMMAND in a root.
told() {
	grep -q -x -e "$2" "$T/$1/run/systemctl.log" 2>/dev/null
}

# daemon NAME: starts the daemon in a root as an ordinary user, as its unit does.
daemon() {
	mkdir -p "$T/$1/var/cache/rdistccd"
	chown 65534:65534 "$T/$1/var/cache/rdistccd"
	within "$1" setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ XDG_CACHE_HOME=/var/cache/rdistccd /usr/bin/rdistccd >"$T/$1.log" 2>&1 &
}

# remote NAME: compiles in a root and expects a host to have done it.
remote() {
	within "$1" sh -c 'cd "$(mktemp -d)" && echo "int f(void) { return 7; }" >x.c && gcc -g -O2 -c x.c -o here.o &&
		RDISTCC_HOSTS=127.0.0.1 RDISTCC_MODE=remote RDISTCC_CACHE=off RDISTCC_REPORT=$PWD/report /usr/lib/rdistcc/gcc -g -O2 -c x.c -o there.o &&
		cmp here.o there.o && grep -q ^remote: report' || {
		cat "$T/host.log" >&2
		fail "no object from a host"
	}
}

ip link set lo up
mount -t tmpfs -o size=1g tmpfs "$T"
