#!/bin/bash
# gcc 16.2.0 (Debian unstable, 16.2.0-4): with -fmodules, a source that includes a part of the C++ library needs bits/stdc++.h, which no
# list of dependencies names.
#
# Whoever sends a compile elsewhere, or runs it in a sandbox, gives it the files that -M or -MD list. With -fmodules (and -std=c++20),
# #include <vector> has the compiler look whether the header of the whole library has been compiled, and for that it opens the header.
# Where it is missing, the compile fails with "bits/stdc++.h: No such file or directory" at the include of <vector>; where it is there,
# nothing says that it was wanted. Without -fmodules it is not needed. gcc 15.3 does not look for it.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p root apt lists/partial cache/archives/partial
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/*$')
echo "deb $uri unstable main" >sources.list
: >status
cat >apt.conf <<C
Dir::Etc::sourcelist "$dir/sources.list"; Dir::Etc::sourceparts "-"; Dir::State::lists "$dir/lists"; Dir::State::status "$dir/status"; Dir::Cache "$dir/cache";
Acquire::Languages "none"; APT::Install-Recommends "false"; Debug::NoLocking "true";
C
export APT_CONFIG=$dir/apt.conf LC_ALL=C
apt-get -q update >/dev/null
(cd apt && apt-get -q download g++-16-x86-64-linux-gnu=16.2.0-4 libstdc++-16-dev=16.2.0-4 libgcc-16-dev=16.2.0-4 \
	libc6 libc6-dev linux-libc-dev libgmp10 libmpfr6 libmpc3 libisl23 zlib1g libzstd1 libstdc++6 libgcc-s1 >/dev/null)
for p in apt/*.deb; do dpkg-deb -x "$p" root; done
changed() { echo "changed: $*" >&2; exit 1; }

libraries=$dir/root/usr/lib/x86_64-linux-gnu
cxx() {
	"$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" root/usr/libexec/gcc/x86_64-linux-gnu/16/cc1plus -quiet -std=c++20 -nostdinc \
		-isystem root/usr/include/c++/16 -isystem root/usr/include/x86_64-linux-gnu/c++/16 -isystem root/usr/lib/gcc/x86_64-linux-gnu/16/include \
		-isystem root/usr/include/x86_64-linux-gnu -isystem root/usr/include -MD a.d "$@" a.cc -o a.s
}
printf '#include <vector>\nint f(const std::vector<int> &v) { return v.size(); }\n' >a.cc

cxx -fmodules || changed "it does not compile with the header"
! grep -q stdc++.h a.d || changed "the header is listed"
find root/usr/include -name stdc++.h -delete
cxx || changed "without modules, it needs the header"
if cxx -fmodules 2>said; then changed "with modules, it does not need the header"; fi
cat said
grep -q 'bits/stdc++.h: No such file or directory' said || changed "it fails otherwise"
echo "as described: gcc 16.2.0-4"
