#!/bin/bash
# ccache 4.14.2 (Debian unstable, ccache 4.14.2-1): a storage helper that ends at once costs each compile ten seconds.
#
# ccache starts a storage helper with its first miss, and tries each millisecond to connect to its socket. If the helper has
# ended meanwhile, because its URL is wrong or its libraries are missing, say, ccache goes on trying for ten seconds: it does
# not look whether its child still runs. The specification of helpers wants just that of a helper which cannot serve: to "exit
# immediately with an error code". The next compile begins anew, so a build of 1000 files takes hours longer; the log alone
# tells why. Whoever writes a helper had better listen all the same, and answer each request with an error.
#
# Seen: two compiles, each of ten seconds or more, that end with status 0.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p root lists/partial cache/archives/partial run bin
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/*$')
echo "deb $uri unstable main" >sources.list
: >status
cat >apt.conf <<X
Dir::Etc::sourcelist "$dir/sources.list"; Dir::Etc::sourceparts "-"; Dir::State::lists "$dir/lists"; Dir::State::status "$dir/status";
Dir::Cache "$dir/cache"; APT::Install-Recommends "false"; Debug::NoLocking "true";
X
APT_CONFIG=$dir/apt.conf apt-get -q update >/dev/null
APT_CONFIG=$dir/apt.conf apt-get -q -y --download-only install ccache >/dev/null
for p in cache/archives/*.deb; do dpkg-deb -x "$p" root; done
lib=$dir/root/usr/lib/x86_64-linux-gnu
ccache() { "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$dir/root/usr/bin/ccache" "$@"; }

printf '#!/bin/sh\nexit 3\n' >bin/ccache-storage-none
chmod +x bin/ccache-storage-none
export PATH=$dir/bin:$PATH CCACHE_DIR=$dir/ccache XDG_RUNTIME_DIR=$dir/run CCACHE_REMOTE_STORAGE=none:
for i in 1 2; do
	echo "int v$i;" >f$i.c
	before=$(date +%s%N)
	ccache gcc -c f$i.c
	took=$((($(date +%s%N) - before) / 1000000))
	echo "compile $i: $took ms"
	[ "$took" -ge 10000 ] || { echo "changed: ccache does not wait for a helper that has ended" >&2; exit 1; }
done
echo "as described: $(ccache --version | head -n 1)"
