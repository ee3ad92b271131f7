#!/bin/bash
# clang 14.0.6 (Debian 12, clang-14 1:14.0.6-12): in -Wp,-MD,FILE,-DNAME the driver drops both FILE and -DNAME without a word.
#
# -Wp, passes the words behind it to the preprocessor, and gcc takes any of them in any order. clang's driver treats a -Wp, that
# begins with -MD or -MMD in a way of its own: with exactly one more word, that is the file for the dependencies; with more than one,
# it acts as if only -MD had been said. The dependencies go to a file named after the output, a macro that the same -Wp, defines is
# not defined, and the status is 0. The kernel's builds have always written -Wp,-MMD,FILE alone, which works. Whoever adds a word to
# it gets another object with clang than with gcc, and a build that reads FILE finds none.
#
# Seen: "int NAME;" compiled as it stands, where gcc compiles "int x;"; a.d instead of deps.d.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt
(cd apt && apt-get -q download clang-14=1:14.0.6-12 libclang-cpp14=1:14.0.6-12 libllvm14=1:14.0.6-12 libclang-common-14-dev=1:14.0.6-12 \
	libz3-4 libedit2 libbsd0 libmd0 libxml2 libicu72 libtinfo6 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
clang() { LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/usr/lib/llvm-14/lib "$dir/root/usr/lib/llvm-14/bin/clang" "$@"; }

echo 'int NAME;' >a.c
clang -Wp,-MD,deps.d,-DNAME=x -S -o a.s a.c
grep -o '^NAME\|^x' a.s | head -n 1
echo *.d
grep -q '^NAME' a.s && [ "$(echo *.d)" = a.d ] || { echo "changed: the words behind -Wp,-MD are not dropped as described" >&2; exit 1; }
clang -Wp,-MD,deps.d -S -o a.s a.c
[ -e deps.d ] || { echo "changed: -Wp,-MD,FILE alone writes no FILE" >&2; exit 1; }
echo "as described: $(clang --version | head -n 1)"
