#!/bin/bash
# clang 14.0.6 (Debian 12, clang-14 and lld-14 1:14.0.6-12): a ThinLTO compile that lacks a module leaves an empty object, with status 0.
#
# A build that spreads the compiles of a ThinLTO link runs clang -c -x ir MODULE -fthinlto-index=INDEX. The index names the modules
# that functions are imported from. When one of these is missing (not sent, or removed by a clean that ran meanwhile), clang prints
# "Error running ThinLTO backend", but ends with status 0, and the object is there, of no bytes. lld takes an empty file for a linker
# script that says nothing, so the link ends with status 0 too, unless somebody misses a symbol: a shared library then lacks the
# functions of that object. make, Ninja and distributors of such compiles have to look at the size of what they get.
#
# Seen in the same way with clang 16.0.6, 19.1.7 and 22.1.8.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt
(cd apt && apt-get -q download clang-14=1:14.0.6-12 lld-14=1:14.0.6-12 llvm-14=1:14.0.6-12 libclang-cpp14=1:14.0.6-12 libllvm14=1:14.0.6-12 \
	libclang-common-14-dev=1:14.0.6-12 libz3-4 libedit2 libbsd0 libmd0 libxml2 libicu72 libtinfo6 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
llvm() { local tool=$1; shift; LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/usr/lib/llvm-14/lib "$dir/root/usr/lib/llvm-14/bin/$tool" "$@"; }
changed() { echo "changed: $*" >&2; exit 1; }

printf 'int g(int);\nint f(int x) { return g(x) + 1; }\n' >one.c
printf 'int k;\nint g(int x) { return x * 3 + k; }\n' >two.c
llvm clang -O2 -fPIC -flto=thin -c one.c two.c
llvm ld.lld -shared --thinlto-index-only one.o two.o -o index.so
llvm clang -O2 -fPIC -c -x ir one.o -fthinlto-index=one.o.thinlto.bc -o whole.o
[ -s whole.o ] || changed "no object with all modules"

mv two.o elsewhere.o
llvm clang -O2 -fPIC -c -x ir one.o -fthinlto-index=one.o.thinlto.bc -o native.o 2>messages || changed "a missing module ends clang with status $?"
cat messages
grep -q two.o messages || changed "no message about the module"
[ -e native.o ] && [ ! -s native.o ] || changed "the object is not empty"
echo 'int other;' >three.c
llvm clang -fPIC -c three.c
llvm ld.lld -shared native.o three.o -o x.so || changed "lld refuses an empty object"
llvm llvm-nm -D --defined-only x.so >names
cat names
grep -q ' other$' names || changed "the library has no symbols"
! grep -q ' f$' names || changed "f is in the library"
echo "as described: $(llvm clang --version | head -n 1)"
