package equal

// project is real code, and how it is built and tested by sh. The commands find
// the variables of build.env.
type project struct {
	name      string
	source    string            // Debian's source package; "": the kernel's sources of the system
	more      map[string]string // further source packages, by the directory that they belong into
	configure string            // with the plain compiler, as a rule
	make      string
	check     string // the project's own tests, run on what rdistcc has built
	optimise  bool   // cannot be built without optimisation
	once      bool   // nothing of it may be compiled on a host and then here again
	warm      bool   // it is built once more, with all that is known from the first time
}

// cmake configures for Ninja; the launcher stands before each compile.
const cmake = `cmake -S . -B out -G Ninja -DCMAKE_C_COMPILER="$PCC" -DCMAKE_CXX_COMPILER="$PCXX" -DCMAKE_C_FLAGS="$FLAGS" -DCMAKE_CXX_FLAGS="$FLAGS" \
	-DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER_LAUNCHER="$W" -DCMAKE_CXX_COMPILER_LAUNCHER="$W" `

// autotools configures out of the tree, as packages do: with -I../../lib and the like, and
// dependency files that name a header in several ways. Libtool compiles each source twice,
// for the shared library and for the static one. Sources that come without a configure
// have one made, by autotools that may be missing.
const autotools = `{ test -x configure || command -v autoreconf >/dev/null || exit 77; } && { test -x configure || autoreconf -fi; } && mkdir out && cd out && CC="$PCC" CFLAGS="$FLAGS" ../configure --enable-shared --enable-static `

var projects = []project{
	{
		name: "lua", source: "lua5.4",
		make: `make -C src linux CC="$CC -std=gnu99" MYCFLAGS="$FLAGS"`,
		check: `test "$(src/lua -e 'local t={} for i=1,10 do t[#t+1]=i*i end print(table.concat(t,","), string.format("%.3f", math.pi))')" = "$(printf '1,4,9,16,25,36,49,64,81,100\t3.142')" &&
			printf 'print(require"string".rep("ab", 3))' | src/luac -o x.luac - && test "$(src/lua x.luac)" = ababab`,
	},
	{
		name: "zlib", source: "zlib",
		configure: `CC="$PCC" CFLAGS="$FLAGS" ./configure`,
		make:      `make CC="$CC" all`,
		check:     `make CC="$CC" check`,
	},
	{
		name: "curl", source: "curl", once: true,
		configure: autotools + `--without-ssl --without-zlib --without-brotli --without-zstd --without-libpsl --without-nghttp2 --without-libidn2 --without-librtmp --without-libssh2 --disable-ldap --disable-manual`,
		make:      `make -C out CC="$CC" V=1`,
		check:     `test "$(out/src/curl -s "file://$PWD/out/libcurl.pc" | head -c 1)" = "#"`,
	},
	{
		name: "pcre2", source: "pcre2", once: true,
		configure: autotools + `--enable-pcre2-16 --enable-pcre2-32 --disable-pcre2test-libreadline`,
		make:      `make -C out CC="$CC" V=1`,
		check: `test "$(printf 'abc\nxyz\n' | out/pcre2grep -c '^a(b|c)')" = 1 &&
			for width in 8 16 32; do printf '/a(b)c/\n  abc\n' | out/pcre2test -q -$width | grep -q '1: b' || exit; done`,
	},
	{
		name: "redis", source: "redis",
		make:  `make MALLOC=libc USE_SYSTEMD=no CC="$CC" CXX="$CXX" OPTIMIZATION="$OPT" DEBUG="$DEBUG" REDIS_CFLAGS= V=1 all`,
		check: `./runtest --clients 2 --single unit/type/string --single unit/type/hash --single unit/type/incr --single unit/expire --single unit/auth`,
	},
	{
		name: "git", source: "git", warm: true,
		make: `make CC="$CC" CFLAGS="$FLAGS" V=1 NO_OPENSSL=1 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_PERL=1 NO_PYTHON=1`,
		check: `export HOME="$PWD" GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b && bin-wrappers/git init -q x && cd x && echo hello >f &&
			../bin-wrappers/git add f && ../bin-wrappers/git commit -q -m first && test "$(../bin-wrappers/git show HEAD:f)" = hello && ../bin-wrappers/git fsck`,
	},
	{
		name: "jsoncpp", source: "libjsoncpp",
		configure: cmake + `-DJSONCPP_WITH_POST_BUILD_UNITTEST=OFF -DCCACHE_EXECUTABLE=`,
		make:      `ninja -j$JOBS -C out`,
		check:     `out/bin/jsoncpp_test && ctest --test-dir out --output-on-failure`,
	},
	{
		name: "flatbuffers", source: "flatbuffers",
		configure: cmake + `-DFLATBUFFERS_BUILD_TESTS=OFF`,
		make:      `ninja -j$JOBS -C out`,
		check:     `printf 'table T { a:int; } root_type T;' >t.fbs && printf '{ a: 7 }' >t.json && out/flatc -b t.fbs t.json && test -s t.bin`,
	},
	{
		name: "tinyxml2", source: "tinyxml2",
		configure: cmake,
		make:      `ninja -j$JOBS -C out`,
		check:     `cd out && ctest --output-on-failure`,
	},
	{
		name: "leveldb", source: "leveldb", more: map[string]string{"third_party/googletest": "googletest", "third_party/benchmark": "benchmark"},
		configure: cmake + `-DLEVELDB_BUILD_BENCHMARKS=OFF -DHAVE_SNAPPY=OFF -DHAVE_TCMALLOC=OFF -DBENCHMARK_ENABLE_TESTING=OFF`,
		make:      `ninja -j$JOBS -C out`,
		check:     `ctest --test-dir out --output-on-failure`,
	},
	{
		name: "snappy", source: "snappy", more: map[string]string{"third_party/googletest": "googletest"},
		configure: cmake + `-DSNAPPY_BUILD_BENCHMARKS=OFF`,
		make:      `ninja -j$JOBS -C out`,
		check:     `out/snappy_unittest`,
	},
	{
		name: "yaml-cpp", source: "yaml-cpp",
		configure: cmake + `-DYAML_CPP_BUILD_TESTS=OFF`,
		make:      `ninja -j$JOBS -C out`,
		check:     `printf 'a: [1, 2]\nb: {c: d}\n' | out/util/parse | grep -q 'c: d'`,
	},
	{
		name: "linux", optimise: true, warm: true,
		configure: `make -C tree -s O="$PWD/out" ARCH=x86 CC="$PCC" HOSTCC=gcc tinyconfig && cd tree && ./scripts/config --file ../out/.config -e PRINTK -e BINFMT_ELF -e TTY -e SERIAL_8250 \
			-e SERIAL_8250_CONSOLE -e 64BIT -e MULTIUSER -e FUTEX -e EPOLL -e POSIX_TIMERS -e PROC_FS -e SYSFS -e BLOCK -e EXT2_FS -e BUG -e SHMEM $KCONFIG &&
			cd .. && make -C tree -s O="$PWD/out" ARCH=x86 CC="$PCC" HOSTCC=gcc olddefconfig`,
		make: `make -C tree O="$PWD/out" ARCH=x86 CC="$CC" HOSTCC=gcc KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 2026' KBUILD_BUILD_USER=u KBUILD_BUILD_HOST=h KBUILD_BUILD_VERSION=1 vmlinux`,
	},
}
