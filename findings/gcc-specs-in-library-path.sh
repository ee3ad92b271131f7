#!/bin/bash
# gcc 12.2.0 (Debian 12, gcc-12 12.2.0-14+deb12u1): LIBRARY_PATH changes what a compile without a link makes, if a directory in it has a
# file called specs.
#
# The manual describes LIBRARY_PATH as directories that are searched for special linker files and for libraries, when linking. In
# fact each of them is a place for the driver's start files too, and the driver looks for rules of its own there (DIR/specs, and
# DIR/TARGET/VERSION/specs) in every run, with -c, -S and -E as well. It says so with -v alone. Whoever caches or distributes compiles
# and takes LIBRARY_PATH for the linker's business, as the manual has it, gives out an object that the local compiler would not have
# made. clang reads no such file.
#
# Seen: the same source, preprocessed with and without LIBRARY_PATH, gives different text.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt libraries
(cd apt && apt-get -q download gcc-12=12.2.0-14+deb12u1 cpp-12=12.2.0-14+deb12u1 libisl23 libmpc3 libmpfr6 libgmp10 libzstd1 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
gcc() { LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu "$dir/root/usr/bin/x86_64-linux-gnu-gcc-12" "$@"; }

printf '*cpp:\n-DWHERE=from_specs\n\n' >libraries/specs
echo 'int WHERE;' >a.c
without=$(gcc -E -P a.c)
with=$(LIBRARY_PATH=libraries gcc -E -P a.c)
echo "without LIBRARY_PATH: $without"
echo "with it:              $with"
[ "$without" = "int WHERE;" ] && [ "$with" = "int from_specs;" ] || { echo "changed: LIBRARY_PATH does not lead to specs as described" >&2; exit 1; }
echo "as described: $(gcc --version | head -n 1)"
