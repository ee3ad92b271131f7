#!/bin/bash
# gcc 12.2.0 (Debian 12, 12.2.0-14+deb12u1): a parallel link with LTO starts three further processes for each partition, to empty a file.
#
# With -flto=N lto-wrapper writes a makefile with one rule a partition. Each has a second line, which needs a shell: it runs touch to make
# an empty file with the partition's time, and mv to put that in the partition's place, so that the disk has room again. On a virtual
# machine whose page faults are dear, the three take 26 ms of CPU together, which for the 95 partitions of a small program is 2.5 s where
# the link's own steps take 1. One system call would do; gcc 15 and later have the driver make it (-truncate).
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt bin
(cd apt && apt-get -q download gcc-12=12.2.0-14+deb12u1 cpp-12=12.2.0-14+deb12u1 libgcc-12-dev=12.2.0-14+deb12u1 binutils=2.40-2 make=4.3-4.1 \
	binutils-x86-64-linux-gnu=2.40-2 libbinutils=2.40-2 libctf0=2.40-2 libctf-nobfd0=2.40-2 libgprofng0=2.40-2 libmpc3 libmpfr6 libgmp10 libisl23 libjansson4 libzstd1 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
export LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu COMPILER_PATH=$dir/root/usr/bin LC_ALL=C
gcc=$dir/root/usr/bin/gcc-12
changed() { echo "changed: $*" >&2; exit 1; }

# What stands first on PATH notes who is started, and does what it is for.
for program in touch mv; do
	printf '#!/bin/sh\necho %s >>%s/started\nexec %s "$@"\n' "$program" "$dir" "$(command -v $program)" >bin/$program
	chmod +x bin/$program
done
export PATH=$dir/bin:$dir/root/usr/bin:$PATH

for n in 0 1 2; do echo "int f$(((n + 1) % 3))(int); static int t[9]; int f$n(int x) { return x > 9 ? t[x & 7]++ : f$(((n + 1) % 3))(x + $n + 1); }" >$n.c; done
"$gcc" -O2 -fPIC -flto -c 0.c 1.c 2.c

"$gcc" -O2 -flto=2 -flto-partition=1to1 --param=lto-min-partition=10 -nostdlib -shared 0.o 1.o 2.o -o x
sort started | uniq -c
[ "$(grep -c touch started)" = 3 ] && [ "$(grep -c mv started)" = 3 ] || changed "touch and mv were not started for each of 3 partitions"

# One after the other, there is no makefile, and none of this.
rm started
"$gcc" -O2 -flto=1 -flto-partition=1to1 --param=lto-min-partition=10 -nostdlib -shared 0.o 1.o 2.o -o y
[ ! -e started ] || changed "a link without make starts them too"
cmp x y || changed "the library differs"
echo "as described: $("$gcc" --version | head -n 1)"
