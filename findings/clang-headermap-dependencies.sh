#!/bin/bash
# clang 14.0.6 (Debian 12, clang-14 1:14.0.6-12): a header map decides which file an #include means, and no list of
# dependencies names it.
#
# With -I FILE.hmap, a table stands in a directory's place in the search path: it says which file a name means. It is an input
# like any header: with other contents the same command compiles other files. But the rules of -MD, and those of -M, list the
# source and the header that the map led to, not the map. A build that goes by these rules (make, Ninja) does not compile
# again when the map changes, and a cache that goes by them answers with the old object. Xcode's builds pass such maps to
# nearly every compile; Bazel's and Buck's rules can. The build has to name maps as inputs of its own.
#
# Seen: "a.s: a.c one/h.h", before the map changes; the same command then compiles two/h.h.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt
(cd apt && apt-get -q download clang-14=1:14.0.6-12 libclang-cpp14=1:14.0.6-12 libllvm14=1:14.0.6-12 libclang-common-14-dev=1:14.0.6-12 \
	libz3-4 libedit2 libbsd0 libmd0 libxml2 libicu72 libtinfo6 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
clang() { LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/usr/lib/llvm-14/lib "$dir/root/usr/lib/llvm-14/bin/clang" "$@"; }

# map TARGET: writes m.hmap, in which h.h stands for TARGET: magic, version 1, where the strings begin, one entry, eight buckets.
# The bucket of a key is the sum of its lower-case letters times 13, modulo the number of buckets.
map() {
	perl -e '
		my ($key, $prefix, $suffix) = ("h.h", $ARGV[0] . "/", "h.h");
		my $strings = "\0$key\0$prefix\0$suffix\0";
		my $at = 0; $at += ord(lc $_) * 13 for split //, $key;
		my @buckets = (pack("V3", 0, 0, 0)) x 8;
		$buckets[$at & 7] = pack("V3", 1, 2 + length $key, 3 + length($key) + length $prefix);
		my $head = pack("VvvVVVV", 0x686d6170, 1, 0, 24 + 12 * 8, 1, 8, length($prefix) + length $suffix);
		print $head, @buckets, $strings;' "$1" >m.hmap
}

mkdir one two
echo 'int one;' >one/h.h
echo 'int two;' >two/h.h
echo '#include "h.h"' >a.c
map "$dir/one"
clang -I m.hmap -MD -MF a.d -S -o a.s a.c
tr -d '\\\n' <a.d | tr -s ' ' >rules
echo "rules: $(cat rules)"
map "$dir/two"
clang -I m.hmap -S -o b.s a.c
if ! grep -q '^one:' a.s || ! grep -q '^two:' b.s; then
	echo "the map did not decide which header was compiled" >&2
	exit 1
fi
grep -q 'one/h.h' rules || { echo "the rules do not name the header" >&2; exit 1; }
if grep -q 'hmap' rules || clang -I m.hmap -M a.c | grep -q hmap; then
	echo "changed: the rules name the map" >&2
	exit 1
fi
echo "as described: $(clang --version | head -n 1)"
