#!/bin/bash
# clang 22.1.8 (Debian 12, clang-22 1:22.1.8-1~deb12u1): a compile whose messages nobody reads any more leaves a file beside its object.
#
# Where what reads a compiler's standard error has ended, as a pager that was left or `make 2>&1 | head`, a compile with a warning is
# killed by SIGPIPE. clang up to 19 ends with status 74 then (EX_IOERR, what LLVM's own handler of the signal does), after it has removed
# what it was writing. clang 21 to 23 die of the signal, as most programs do (status 141 for a shell), and w-1a2b3c4d.o.tmp stays where w.o
# was to be, under another name each time, so a build directory gathers them and no "make clean" knows them. Who compares what two
# compiles leave behind has to take the eight digits for random; who tells a compiler that was killed, and is to be started again, from
# one that has failed sees another status than before.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt
(cd apt && apt-get -q download clang-19=1:19.1.7-3~deb12u1 libclang-cpp19=1:19.1.7-3~deb12u1 libllvm19=1:19.1.7-3~deb12u1 \
	clang-22=1:22.1.8-1~deb12u1 libclang-cpp22=1:22.1.8-1~deb12u1 libllvm22=1:22.1.8-1~deb12u1 \
	libz3-4 libedit2 libbsd0 libmd0 libxml2 libicu72 libtinfo6 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
export LC_ALL=C
changed() { echo "changed: $*" >&2; exit 1; }
printf 'int f(int a) { int unused; return 1; }\n' >w.c

# left VERSION: compiles with a warning and no reader, and prints the status and what is there then.
left() {
	local lib=$dir/root/usr/lib
	rm -rf out && mkdir out
	mkfifo pipe
	exec 3<>pipe 4>pipe 3<&- # a pipe to write to, without anything that reads it
	rm pipe
	local status=0
	LD_LIBRARY_PATH=$lib/x86_64-linux-gnu:$lib/llvm-$1/lib "$lib/llvm-$1/bin/clang" -Wall -c w.c -o out/w.o 2>&4 || status=$?
	exec 4>&-
	echo "$status $(ls out)"
}
old=$(left 19) new=$(left 22)
echo "clang 19: status and files: $old"
echo "clang 22: status and files: $new"
[ "$old" = "74 " ] || changed "clang 19"
[[ $new =~ ^141\ w-[0-9a-f]{8}\.o\.tmp$ ]] || changed "clang 22"
again=$(left 22)
[ "$again" != "$new" ] || changed "the name is the same twice"
echo "as described"
