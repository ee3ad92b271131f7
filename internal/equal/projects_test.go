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
}

// cmake configures for Ninja; the launcher stands before each compile.
const cmake = `cmake -S . -B out -G Ninja -DCMAKE_C_COMPILER="$PCC" -DCMAKE_CXX_COMPILER="$PCXX" -DCMAKE_C_FLAGS="$FLAGS" -DCMAKE_CXX_FLAGS="$FLAGS" \
	-DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER_LAUNCHER="$W" -DCMAKE_CXX_COMPILER_LAUNCHER="$W" `

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
		name: "redis", source: "redis",
		make:  `make MALLOC=libc USE_SYSTEMD=no CC="$CC" CXX="$CXX" OPTIMIZATION="$OPT" DEBUG="$DEBUG" REDIS_CFLAGS= V=1 all`,
		check: `./runtest --clients 2 --single unit/type/string --single unit/type/hash --single unit/type/incr --single unit/expire --single unit/auth`,
	},
	{
		name: "jsoncpp", source: "libjsoncpp",
		configure: cmake + `-DJSONCPP_WITH_POST_BUILD_UNITTEST=OFF -DCCACHE_EXECUTABLE=`,
		make:      `ninja -j$JOBS -C out`,
		check:     `out/bin/jsoncpp_test && ctest --test-dir out --output-on-failure`,
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
		name: "linux", optimise: true,
		configure: `make -C tree -s O="$PWD/out" ARCH=x86 CC="$PCC" HOSTCC=gcc tinyconfig && cd tree && ./scripts/config --file ../out/.config -e PRINTK -e BINFMT_ELF -e TTY -e SERIAL_8250 \
			-e SERIAL_8250_CONSOLE -e 64BIT -e MULTIUSER -e FUTEX -e EPOLL -e POSIX_TIMERS -e PROC_FS -e SYSFS -e BLOCK -e EXT2_FS -e BUG -e SHMEM $KCONFIG &&
			cd .. && make -C tree -s O="$PWD/out" ARCH=x86 CC="$PCC" HOSTCC=gcc olddefconfig`,
		make: `make -C tree O="$PWD/out" ARCH=x86 CC="$CC" HOSTCC=gcc KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 2026' KBUILD_BUILD_USER=u KBUILD_BUILD_HOST=h vmlinux`,
	},
}
