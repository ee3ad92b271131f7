#!/bin/sh
# Runs a command with another root, such as mmdebstrap makes, in which this directory is, and Go with its caches:
#
#	in-root.sh ROOT COMMAND...
#
# It leaves empty directories in the root, and needs to be run as root.
set -eu
root=$(cd "$1" && pwd)
shift
dirs="$(pwd) $(go env GOROOT) $(go env GOMODCACHE) $(go env GOCACHE)"
PATH=$(go env GOROOT)/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
# $0 of the inner shell is the root, which has to be a mount for daemons to replace it.
# shellcheck disable=SC2016
exec env PATH="$PATH" GOMODCACHE="$(go env GOMODCACHE)" GOCACHE="$(go env GOCACHE)" CGO_ENABLED=0 \
	unshare --mount --propagation private sh -euc '
		dirs=$1 cwd=$2
		shift 2
		mount --bind "$0" "$0"
		for d in $dirs; do
			mkdir -p "$0$d"
			mount --bind "$d" "$0$d"
		done
		mount -t proc proc "$0/proc"
		mount --rbind /dev "$0/dev"
		mount -t tmpfs tmpfs "$0/tmp"
		cd /
		exec chroot "$0" sh -c "cd \"\$0\" && exec \"\$@\"" "$cwd" "$@"' "$root" "$dirs" "$(pwd)" "$@"
