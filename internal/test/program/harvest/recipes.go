package main

// recipe says how a package is built by its own build system. The commands, for sh, run in the directory
// with its sources and get the variables of variant.env. Packages that use autotools are configured once;
// make is told of the other variants.
type recipe struct {
	name      string
	more      map[string]string // further packages, by the directory that they belong in
	configure string            // with the real compilers
	make      string            // with the recording compilers; commands that it prints, as ninja and make -n do, are recorded as well
}

// Build systems that most packages use.
const (
	autotools = `[ "$V" != 1 ] || { [ -x configure ] || { [ -x autogen.sh ] && NOCONFIGURE=1 ./autogen.sh; } || autoreconf -fi; }; [ "$V" != 1 ] || ./configure --cache-file="$CACHE" `
	automake  = `find . -name '*.o' -o -name '*.lo' | xargs rm -f; make -k -j4 V=1 CC="$CC" CXX="$CXX" ${CFLAGS:+CFLAGS="$CFLAGS" CXXFLAGS="$CFLAGS" CPPFLAGS="$CPPFLAGS"}`
	cmake     = `cmake -S . -B out-$CC -G Ninja -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_C_FLAGS="$CPPFLAGS $CFLAGS" -DCMAKE_CXX_FLAGS="$CPPFLAGS $CFLAGS" \
	-DCMAKE_BUILD_TYPE="$TYPE" -DCMAKE_POSITION_INDEPENDENT_CODE="$PIC" `
	cmakeMake = `ninja -C out-$CC -t commands`
	meson     = `meson setup out$V --buildtype="$MESONTYPE" --wrap-mode=nodownload `
	mesonMake = `ninja -C out$V -t commands`
	plain     = `make -n -k V=1 CC="$CC" CXX="$CXX" `
)

var recipes = []recipe{
	{name: "abseil", configure: cmake, make: cmakeMake},
	{name: "bash", configure: autotools, make: automake},
	{name: "botan", configure: `python3 configure.py --cc=${CC%++} --cc-bin="$CXX" --without-documentation --extra-cxxflags="$CPPFLAGS $CFLAGS" $([ "$V" != 8 ] || echo --amalgamation)`, make: `make -n -k libs cli`},
	{name: "brotli", configure: cmake, make: cmakeMake},
	{name: "busybox", configure: `make defconfig`, make: `make -k -j4 V=1 CC="$CC" HOSTCC=/usr/bin/gcc SKIP_STRIP=y CONFIG_EXTRA_CFLAGS="$CPPFLAGS $CFLAGS"; find . -name '*.o' | xargs rm -f`},
	{name: "bzip2", make: `make -n -k CC="$CC" ${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} all; make -n -k -f Makefile-libbz2_so CC="$CC" ${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS -fpic"}`},
	{name: "capnproto", configure: cmake, make: cmakeMake},
	{name: "cjson", configure: cmake, make: cmakeMake},
	{name: "coreutils", configure: `FORCE_UNSAFE_CONFIGURE=1; export FORCE_UNSAFE_CONFIGURE; ` + autotools, make: automake},
	{name: "curl", configure: autotools + `--without-ssl --without-libpsl`, make: automake},
	{name: "dash", configure: autotools, make: automake},
	{name: "dav1d", configure: meson + `-Denable_asm=false`, make: mesonMake},
	{name: "dnsmasq", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} all`},
	{name: "double-conversion", configure: cmake, make: cmakeMake},
	{name: "dropbear", configure: autotools + `--disable-zlib`, make: automake},
	{name: "expat", configure: `cd expat && ` + cmake, make: `cd expat && ` + cmakeMake},
	{name: "ffmpeg", configure: `[ "$V" != 1 ] || ./configure --disable-x86asm --disable-doc`, make: `make -n -k V=1 CC="$CC" CXX="$CXX" ECFLAGS="$CPPFLAGS $CFLAGS"`},
	{name: "findutils", configure: autotools, make: automake},
	{name: "fmtlib", configure: cmake + `-DFMT_TEST=OFF`, make: cmakeMake},
	{name: "fribidi", configure: meson + `-Ddocs=false`, make: mesonMake},
	{name: "gawk", configure: autotools, make: automake},
	{name: "giflib", make: plain + `${CFLAGS:+OFLAGS="$CPPFLAGS $CFLAGS"} all`},
	{name: "git", make: plain + `NO_OPENSSL=1 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 ${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} all`},
	{name: "gmp", configure: autotools, make: automake},
	{name: "googletest", configure: cmake, make: cmakeMake},
	{name: "grep", configure: autotools, make: automake},
	{name: "gzip", configure: autotools, make: automake},
	{name: "haproxy", make: plain + `TARGET=linux-glibc USE_GETADDRINFO=1 ${CFLAGS:+CPU_CFLAGS="$CPPFLAGS $CFLAGS"} $([ $((V % 2)) = 0 ] && echo USE_STATIC_PCRE2=1 USE_TFO=1 || echo DEBUG_STRICT=2 USE_PTHREAD_EMULATION=1) all`},
	{name: "harfbuzz", configure: meson + `-Dtests=enabled -Ddocs=disabled -Dglib=disabled -Dgobject=disabled -Dfreetype=disabled`, make: mesonMake},
	{name: "hello", configure: autotools, make: automake},
	{name: "hiredis", make: plain + `${CFLAGS:+OPTIMIZATION="$CFLAGS"} USE_SSL=1 all hiredis-test`},
	{name: "htslib", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} all test`},
	{name: "http-parser", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} parsertrace library test`},
	{name: "iproute2", configure: `./configure`, make: `make -n -k V=1 CC="$CC" ${CFLAGS:+CCOPTS="$CPPFLAGS $CFLAGS"}`},
	{name: "json-c", configure: cmake, make: cmakeMake},
	{name: "jsonnet", make: plain + `${CFLAGS:+OPT="$CPPFLAGS $CFLAGS"} libjsonnet.so libjsonnet++.so jsonnet`},
	{name: "leveldb", more: map[string]string{"third_party/googletest": "googletest", "third_party/benchmark": "benchmark"}, configure: cmake + `-DBENCHMARK_ENABLE_TESTING=OFF`, make: cmakeMake},
	{name: "libarchive", configure: cmake, make: cmakeMake},
	{name: "libbpf", make: plain + `-C src ${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"}`},
	{name: "libdeflate", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} all test_programs`},
	{name: "libevent", configure: autotools + `--disable-openssl`, make: automake},
	{name: "libffi", configure: autotools, make: automake},
	{name: "libgit2", more: map[string]string{"deps/http-parser": "http-parser"}, configure: cmake + `-DUSE_HTTPS=OFF -DUSE_SSH=OFF -DREGEX_BACKEND=regcomp -DUSE_HTTP_PARSER=system -DHTTP_PARSER_INCLUDE_DIR="$PWD/deps/http-parser" -DHTTP_PARSER_LIBRARY=http_parser`, make: cmakeMake},
	{name: "libgsm", make: plain + `${CFLAGS:+CCFLAGS="-c $CPPFLAGS $CFLAGS"} all`},
	{name: "libjsoncpp", configure: cmake, make: cmakeMake},
	{name: "libpng1.6", configure: cmake, make: cmakeMake},
	{name: "libsodium", configure: autotools, make: automake},
	{name: "libtomcrypt", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} library test`},
	{name: "libtommath", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"}`},
	{name: "libuv1", configure: cmake, make: cmakeMake},
	{name: "libwebp", configure: cmake, make: cmakeMake},
	{name: "libxml2", configure: autotools + `--without-python`, make: automake},
	{name: "libzstd", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} -C lib; ` + plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} -C programs`},
	{name: "linux", configure: `case $V in 1|4) ;; *) exit 1; esac; make -s O=out ARCH=x86 CC="$CC" HOSTCC=/usr/bin/gcc $KCONFIG`, make: `make -k -j4 V=1 O=out ARCH=x86 CC="$CC" HOSTCC=/usr/bin/gcc init/ kernel/ mm/ lib/ crypto/ net/core/ arch/x86/; find out -name '*.o' | xargs rm -f`},
	{name: "lmdb", make: plain + `-C libraries/liblmdb ${CFLAGS:+OPT="$CPPFLAGS $CFLAGS"}`},
	{name: "lua5.3", make: `make -n -k -C src a CC="$CC -std=gnu99" MYCFLAGS="$CPPFLAGS $CFLAGS"`},
	{name: "lua5.4", make: `make -n -k -C src a CC="$CC -std=gnu99" MYCFLAGS="$CPPFLAGS $CFLAGS"`},
	{name: "lz4", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} lib lz4`},
	{name: "m4", configure: autotools, make: automake},
	{name: "make-dfsg", configure: autotools, make: automake},
	{name: "masscan", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"}`},
	{name: "mbedtls", configure: cmake, make: cmakeMake},
	{name: "mdadm", make: plain + `CXFLAGS="$CPPFLAGS $CFLAGS" everything`},
	{name: "minimap2", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} all extra sse2only=$([ $((V % 3)) != 0 ] || echo 1)`},
	{name: "mupdf", make: `make -n -k verbose=yes CC="$CC" CXX="$CXX" USE_SYSTEM_LIBS=yes build=$([ "$V" = 7 ] && echo debug || echo release) ${CFLAGS:+XCFLAGS="$CPPFLAGS $CFLAGS"} libs apps`},
	{name: "musl", configure: `./configure CC="$CC" CFLAGS="$CFLAGS"`, make: `make -n -k`},
	{name: "nginx", configure: `auto/configure --without-http_rewrite_module --without-http_gzip_module --with-cc="$CC" --with-cc-opt="$CPPFLAGS $CFLAGS" || ./configure --without-http_rewrite_module --without-http_gzip_module --with-cc="$CC" --with-cc-opt="$CPPFLAGS $CFLAGS"`, make: `make -n -k`},
	{name: "openssl", configure: `CC="$CC" ./Configure linux-x86_64 $([ "$CC" != clang ] || echo no-asm) $CPPFLAGS $CFLAGS`, make: `make -n -k _build_libs _build_modules apps/openssl`},
	{name: "opus", configure: autotools, make: automake},
	{name: "p7zip", make: `for d in Alone2 Format7zF SFXCon LzmaCon; do make -n -k -C CPP/7zip/Bundles/$d -f $([ "$CC" = clang ] && echo ../../cmpl_clang.mak || echo ../../cmpl_gcc.mak) CC="$CC" CXX="$CXX" CFLAGS_ADD="$CPPFLAGS $CFLAGS"; done`},
	{name: "pciutils", make: plain + `ZLIB=no HWDB=no ${CFLAGS:+OPT="$CPPFLAGS $CFLAGS"} SHARED=$([ $((V % 2)) = 0 ] && echo yes || echo no)`},
	{name: "pcre2", configure: autotools + `--enable-pcre2-16 --enable-jit`, make: automake},
	{name: "pixman", configure: meson, make: mesonMake},
	{name: "protobuf", configure: cmake + `-Dprotobuf_BUILD_TESTS=OFF`, make: cmakeMake},
	{name: "python3.11", configure: `[ "$V" != 1 ] || ./configure`, make: `make -k -j4 CC="$CC" ${CFLAGS:+OPT="$CPPFLAGS $CFLAGS"}; find . -name '*.o' | xargs rm -f`},
	{name: "re2", configure: `touch re2/perl_groups.cc re2/unicode_casefold.cc re2/unicode_groups.cc; ` + cmake, make: cmakeMake},
	{name: "redis", make: `make -n -k MALLOC=libc USE_SYSTEMD=no CC="$CC" CXX="$CXX" V=1 ${CFLAGS:+OPTIMIZATION="$CFLAGS"} REDIS_CFLAGS="$CPPFLAGS" all`},
	{name: "samtools", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} HTSDIR=/usr/include all test`},
	{name: "sed", configure: autotools, make: automake},
	{name: "snappy", more: map[string]string{"third_party/googletest": "googletest", "third_party/benchmark": "benchmark"}, configure: cmake + `-DBENCHMARK_ENABLE_TESTING=OFF`, make: cmakeMake},
	{name: "sqlite3", configure: autotools + `--disable-tcl`, make: automake},
	{name: "squashfs-tools", make: plain + `-C squashfs-tools XZ_SUPPORT=1 LZO_SUPPORT=1 ZSTD_SUPPORT=1 EXTRA_CFLAGS="$CPPFLAGS $CFLAGS"`},
	{name: "strace", configure: autotools + `--disable-mpers`, make: automake},
	{name: "suitesparse", make: `make -n -k CC="$CC" CXX="$CXX" CUDA=no ${CFLAGS:+OPTIMIZATION="$CPPFLAGS $CFLAGS"} library`},
	{name: "tcl8.6", configure: `cd unix && ` + autotools, make: `cd unix && ` + automake},
	{name: "tinyxml2", configure: cmake, make: cmakeMake},
	{name: "tmux", configure: autotools, make: automake},
	{name: "u-boot", configure: `make sandbox_defconfig HOSTCC=/usr/bin/gcc`, make: `make -k -j4 V=1 NO_SDL=1 NO_PYTHON=1 CC="$CC" HOSTCC=/usr/bin/gcc KCFLAGS="$KCFLAGS"; find . -name '*.o' | xargs rm -f`},
	{name: "unzip", make: `make -n -k -f unix/Makefile CC="$CC" LOC="-DNO_LCHMOD $CPPFLAGS $CFLAGS" generic; make -n -k -f unix/Makefile CC="$CC" CF="-I. -DUNIX $CPPFLAGS $CFLAGS" unzips`},
	{name: "utf8proc", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS" CXXFLAGS="$CPPFLAGS $CFLAGS"} all`},
	{name: "wpa", make: `cd wpa_supplicant && cp defconfig .config && make -n -k V=1 CC="$CC" EXTRA_CFLAGS="$CPPFLAGS $CFLAGS"; cd ../hostapd && cp defconfig .config && make -n -k V=1 CC="$CC" EXTRA_CFLAGS="$CPPFLAGS $CFLAGS"`},
	{name: "xxhash", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS"} DISPATCH=$([ "$V" = 3 ] && echo 1 || echo 0)`},
	{name: "xz-utils", configure: autotools, make: automake},
	{name: "yaml-cpp", configure: cmake, make: cmakeMake},
	{name: "zlib", configure: `CC="$CC" CFLAGS="$CPPFLAGS $CFLAGS" ./configure`, make: `make -n -k all`},
	{name: "zopfli", make: plain + `${CFLAGS:+CFLAGS="$CPPFLAGS $CFLAGS" CXXFLAGS="$CPPFLAGS $CFLAGS"}`},
}

// variant is a way of building: the compiler, and what a distribution or a developer adds to the package's
// own options.
type variant struct {
	number, cc, cxx  string
	cppflags, cflags string // $PWD stands for the package's directory
	cmakeType, meson string
	pic, kconfig     string // of CMake and of the kernel
}

var variants = []variant{
	// The package's defaults.
	{number: "1", cc: "gcc", cxx: "g++", cmakeType: "Release", meson: "debugoptimized", kconfig: "defconfig"},
	// Debian: dpkg-buildflags with hardening=+all; its cmake has no build type.
	{
		number: "2", cc: "gcc", cxx: "g++", cppflags: "-Wdate-time -D_FORTIFY_SOURCE=2",
		cflags:    "-g -O2 -ffile-prefix-map=$PWD=. -fstack-protector-strong -fstack-clash-protection -Wformat -Werror=format-security -fcf-protection",
		cmakeType: "None", meson: "plain", kconfig: "tinyconfig",
	},
	// In the manner of Arch, with link-time optimization.
	{
		number: "3", cc: "gcc", cxx: "g++",
		cflags: "-march=x86-64-v2 -mtune=generic -O2 -pipe -fno-plt -fexceptions -Wp,-D_FORTIFY_SOURCE=2 -Wformat -Werror=format-security -fstack-clash-protection " +
			"-fcf-protection -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -flto=auto -fdebug-prefix-map=$PWD=/usr/src/debug",
		cmakeType: "RelWithDebInfo", meson: "release", kconfig: "allnoconfig",
	},
	// A developer's, with clang and sanitizers.
	{
		number: "4", cc: "clang", cxx: "clang++", cflags: "-O1 -g3 -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all",
		cmakeType: "Debug", meson: "debug", pic: "ON", kconfig: "tinyconfig",
	},
	// In the manner of Fedora, without its specs.
	{
		number: "5", cc: "gcc", cxx: "g++",
		cflags: "-O2 -fexceptions -g1 -grecord-gcc-switches -pipe -Wall -Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=2 -Wp,-D_GLIBCXX_ASSERTIONS -m64 -mtune=generic " +
			"-fasynchronous-unwind-tables -frandom-seed=harvest -Wa,--noexecstack --param=ssp-buffer-size=4",
		cmakeType: "MinSizeRel", meson: "minsize", kconfig: "tinyconfig",
	},
	// With coverage.
	{number: "6", cc: "gcc", cxx: "g++", cflags: "-O0 -g --coverage -fprofile-abs-path", cmakeType: "None", meson: "debug", kconfig: "tinyconfig"},
	// A developer looking for races and for stack usage.
	{number: "7", cc: "gcc", cxx: "g++", cflags: "-Og -ggdb3 -gz -gsplit-dwarf -fstack-usage -fsanitize=thread -fdiagnostics-color=always", cmakeType: "Debug", meson: "debug", pic: "ON"},
	// In the manner of Yocto and of Nix.
	{
		number: "8", cc: "gcc", cxx: "g++", cppflags: "-isystem /usr/local/include -idirafter /usr/include",
		cflags: "-m64 -march=x86-64-v3 -O3 -pipe -feliminate-unused-debug-types -fmacro-prefix-map=$PWD=/usr/src/debug/p -fdebug-prefix-map=$PWD=/usr/src/debug/p " +
			"-ffunction-sections -fdata-sections -fvisibility=hidden -frandom-seed=0abcdefgh1 -fno-strict-overflow -Wa,--compress-debug-sections",
		cmakeType: "MinSizeRel", meson: "plain",
	},
	// In the manner of Chromium and of Android.
	{
		number: "9", cc: "clang", cxx: "clang++",
		cflags: "-O2 -g2 -gdwarf-4 -flto=thin -fsplit-lto-unit -fvisibility=hidden -ffunction-sections -fdata-sections -fcolor-diagnostics -fno-addrsig " +
			"-fcrash-diagnostics-dir=../crash -mllvm -inline-threshold=500 -ffp-contract=off -no-canonical-prefixes -fdebug-compilation-dir=. -Wno-unused-command-line-argument",
		cmakeType: "RelWithDebInfo", meson: "release",
	},
	// With coverage, by clang.
	{number: "10", cc: "clang", cxx: "clang++", cflags: "-O0 -gline-tables-only -fprofile-instr-generate -fcoverage-mapping -fstack-protector-all -ftrivial-auto-var-init=pattern", cmakeType: "None", meson: "plain"},
}
