#!/bin/bash
# gcc 12.2.0 (Debian 12, gcc-12 12.2.0-14+deb12u1): -fopt-info=FILE appends to FILE; its manual says that FILE is overwritten.
#
# The manual's text about -fopt-info says that the output file is overwritten where there are several translation units, and
# to use stderr for a report about all of them. In fact a compile opens a file that is there and writes behind what is in
# it: reports grow with every build, and hold lines of compiles that are long past. Whoever trusts the manual and writes such
# a file anew, as a cache or a distributed compile does with the outputs of a compile, loses the lines of the sources before.
# A build that wants one report a build removes the file first.
#
# Seen: two compiles of different sources leave a line of each in the file.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt
(cd apt && apt-get -q download gcc-12=12.2.0-14+deb12u1 cpp-12=12.2.0-14+deb12u1 libisl23 libmpc3 libmpfr6 libgmp10 libzstd1 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
gcc() { LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu "$dir/root/usr/bin/x86_64-linux-gnu-gcc-12" "$@"; }

for i in 1 2; do
	echo "int f$i(int *x, int n) { int s = 0; for (int i = 0; i < n; i++) s += x[i]; return s; }" >f$i.c
	gcc -O3 -S -o f$i.s f$i.c -fopt-info-vec=report.txt
done
cat report.txt
[ "$(cut -d : -f 1 report.txt | sort -u | tr '\n' ' ')" = "f1.c f2.c " ] || { echo "changed: the file does not hold the lines of both compiles" >&2; exit 1; }
echo "as described: $(gcc --version | head -n 1)"
