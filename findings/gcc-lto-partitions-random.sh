#!/bin/bash
# gcc 12.2.0 (Debian 12, 12.2.0-14+deb12u1): no partition of a link with LTO is ever the same bytes again, though what becomes of it is.
#
# A link with -flto splits the program into partitions, files that lto-wrapper has compiled by another run of gcc each. Two links of the
# same objects with the same words make partitions that differ: gcc ends the names of their sections in a random number, another one in
# each link (.gnu.lto_.decls.a97e3c25eff9a6b9). The objects that are compiled from them, and the linked program, are the same bytes.
# A cache or a farm that names such a compile by the bytes of its input never finds it again. -frandom-seed=X at the link makes the
# partitions the same too; it does not help to give it at the compiles alone.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt
(cd apt && apt-get -q download gcc-12=12.2.0-14+deb12u1 cpp-12=12.2.0-14+deb12u1 libgcc-12-dev=12.2.0-14+deb12u1 binutils=2.40-2 \
	binutils-x86-64-linux-gnu=2.40-2 libbinutils=2.40-2 libctf0=2.40-2 libctf-nobfd0=2.40-2 libgprofng0=2.40-2 libmpc3 libmpfr6 libgmp10 libisl23 libjansson4 libzstd1 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
export LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu COMPILER_PATH=$dir/root/usr/bin LC_ALL=C
gcc=$dir/root/usr/bin/gcc-12
changed() { echo "changed: $*" >&2; exit 1; }

printf 'int g(int); static int t[9]; int f(int x) { return x > 9 ? t[x & 7]++ : g(x + 1); }\n' >one.c
printf 'int f(int); static int t[9]; int g(int x) { return x > 8 ? t[x & 3]-- : f(x + 2); }\n' >two.c
"$gcc" -O2 -fPIC -flto -frandom-seed=a -c one.c two.c

# linked DIR WORDS... links in the same directory and moves what is left to DIR.
linked() {
	local to=$1
	shift
	"$gcc" -O2 -flto=2 -flto-partition=1to1 --param=lto-min-partition=10 -nostdlib -shared -save-temps "$@" one.o two.o -o x 2>/dev/null
	mkdir "$to" && mv x x.ltrans* "$to"
}
linked first
linked second
[ -e first/x.ltrans1.o ] || changed "no second partition"
for n in 0 1; do
	! cmp first/x.ltrans$n.o second/x.ltrans$n.o || changed "partition $n is the same"
	cmp first/x.ltrans$n.ltrans.o second/x.ltrans$n.ltrans.o || changed "the object of partition $n differs"
done
cmp first/x second/x || changed "the library differs"
for d in first second; do "$dir/root/usr/bin/readelf" -SW $d/x.ltrans0.o | grep -o 'gnu.lto_.decls[^ ]*'; done

linked third -frandom-seed=b
linked fourth -frandom-seed=b
for n in 0 1; do cmp third/x.ltrans$n.o fourth/x.ltrans$n.o || changed "partition $n differs with a seed"; done
echo "as described: $("$gcc" --version | head -n 1)"
