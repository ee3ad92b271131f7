#!/bin/bash
# clang 14.0.6 (Debian 12, 1:14.0.6-12): two compiles of the same source write different optimization records.
#
# With -fsave-optimization-record, clang says beside the object what it did and did not do, as YAML. Why a load stays
# (ClobberedBy in GVN's LoadClobbered) is taken from the places that may write to it in the order of addresses in the
# compiler's own memory, which are others each time. The object is the same. So who compares what two compiles made,
# to tell a faulty machine from a sound one or as a test of reproducible builds, must leave these files out. clang 13,
# 15, 16, 19 and 22 do the same; how often depends on the source.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir root apt
(cd apt && apt-get -q download clang-14=1:14.0.6-12 libclang-cpp14=1:14.0.6-12 libllvm14=1:14.0.6-12 libclang-common-14-dev=1:14.0.6-12 \
	libstdc++-12-dev=12.2.0-14+deb12u1 libgcc-12-dev=12.2.0-14+deb12u1 libc6-dev linux-libc-dev libz3-4 libedit2 libtinfo6 libxml2 libbsd0 libmd0 libffi8 \
	libicu72 liblzma5 zlib1g >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
export LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/usr/lib/llvm-14/lib:$dir/root/lib/x86_64-linux-gnu LC_ALL=C
clang() { "$dir/root/usr/lib/llvm-14/bin/clang" --sysroot="$dir/root" "$@"; }
changed() { echo "changed: $*" >&2; exit 1; }

cat >a.cc <<'C'
#include <map>
#include <string>
#include <vector>
std::map<std::string, std::vector<int>> all;
int sum(const std::string &below) {
	int n = 0;
	for (auto &one : all)
		if (one.first < below)
			for (int i : one.second)
				n += i;
	all[below].push_back(n);
	return n;
}
C
for i in $(seq 20); do
	clang -O2 -g -fsave-optimization-record -c a.cc -o a.o
	sha256sum <a.o >>objects
	sha256sum <a.opt.yaml >>records
	cp a.opt.yaml "$i.yaml"
done
echo "objects: $(sort -u objects | wc -l) of 20, records: $(sort -u records | wc -l) of 20"
[ "$(sort -u objects | wc -l)" = 1 ] || changed "objects differ too"
[ "$(sort -u records | wc -l)" -gt 1 ] || changed "all records are equal"

# Nothing but that place differs: without it, all records have the same lines.
for i in $(seq 20); do
	awk '/ClobberedBy/ {skip = 3} skip-- > 0 {next} 1' "$i.yaml" | sha256sum
done | sort -u >rest
[ "$(wc -l <rest)" = 1 ] || changed "they differ in more"
echo "as described: $(clang --version | head -n 1)"
