package compile

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// parseCases: compilers (as in equalCases, or a name), words, and the verdict:
// a reason, or "remote", or "sources:" with the reason against text, then the
// language and the outputs.
var parseCases = []struct{ compilers, args, want string }{
	{"c", "a.c -o a.o -c", "remote c a.o"},
	{"c", "-c -c a.c", "remote c a.o"},
	{"x", "-O2 -c a.cpp -o a.o", "remote c++ a.o"},
	{"c", "-c a.c -o aobject", "remote c aobject"},
	{"c", "-c ./a.c -o ./a.o", "remote c ./a.o"},
	{"c", "-c ../src/s.c -o s.o", "remote c s.o"},
	{"c", "-pipe -c a.c -o a.o", "remote c a.o"},
	{"x", "-c empty.cpp -o e.o", "remote c++ e.o"},
	{"x", "-c a.C", "remote c++ a.o"},
	{"x", "-c a.c++", "remote c++ a.o"},
	{"x", "-c a.CPP", "remote c++ a.o"},
	{"x", "-c a.cp", "remote c++ a.o"},
	{"c", "-c pre.i", "remote cpp-output pre.o"},
	{"x", "-c pre.ii", "remote c++-cpp-output pre.o"},
	{"x", "-c b.c -o b.o", "remote c++ b.o"},
	{"c", "-c plain.cpp -o p.o", "remote c++ p.o"},
	{"c", "-c s.s -o s.o", "sources:assembler assembler s.o"},
	{"c", "-x c -c ctext.txt -o t.o", "remote c t.o"},
	{"c", "-xc++ -c b.c -o b.o", "remote c++ b.o"},
	{"c", "-x c -c a.c -o x.o", "remote c x.o"},
	{"c", "-x nosuchlang -c a.c", "not-reproducible:language"},
	{"x", "-g -x c++ -c a.cpp -o a.o", "sources:debug c++ a.o"},
	{"c", "-x c -c - -o b.o", "stdin"},
	{"c", "-c a,b.c", "remote c a,b.o"},
	{"c", "-c .hidden.c", "remote c .hidden.o"},
	{"c", "-c d$ollar.c", "remote c d$ollar.o"},
	{"c", "-c quo'te.c", "remote c quo'te.o"},
	{"c", "-c a.c -o ./-o.o", "remote c ./-o.o"},
	{"c", "-c tmp.conftest.c -o tmp.conftest.o", "probe"},
	{"c", "-c a.c -o result.c", "remote c result.c"},
	{"c", "-DSCALE=(1+\x002) -DF(x)=x -c a.c", "remote c a.o"},
	{"c", "-DSMSG=foo.c -c macro.c", "remote c macro.o"},
	{"c", "-isystemsys -c usesys.c", "remote c usesys.o"},
	{"c", "-idirafter sys -c usesys.c", "remote c usesys.o"},
	{"c", "-c deepinc.c", "remote c deepinc.o"},
	{"gcc", "-CC -c b.c", "sources:comments c b.o"},
	{"clang", "-CC -c b.c", "not-reproducible:comments"},
	{"clang", "-object-file-name=x.o -c a.c", "unknown-option:-object-file-name"},
	{"clang", "-objcmt-allowlist-dir-path=x -c a.c", "unknown-option:-objcmt-allowlist-dir-path"},
	{"c", "-ansi -c b.c", "remote c b.o"},
	{"gcc", "-fexec-charset=latin1 -c latin1.c -finput-charset=latin1", "remote c latin1.o"},
	{"c", "-c ../macro.c -o m.o", "remote c m.o"},
	{"c", "-W -Wall -c a.c", "remote c a.o"},
	{"c", "-Wno-builtin-macro-redefined -D__DATE__=\"r\" -D__TIME__=\"r\" -c date.c", "remote c date.o"},
	{"c", "-fmacro-prefix-map=/src=/src -c /src/macro.c -o m.o", "remote c m.o"},
	{"c", "-c bom.c", "remote c bom.o"},
	{"c", "-x c-header pch/p.h -o pch/p.h.gch", "not-reproducible:pch"},
	{"c", "-MD -c a.c -o a.o", "remote c a.o a.d"},
	{"c", "-MD -c a.c -o sub/obj/a.o", "remote c sub/obj/a.o sub/obj/a.d"},
	{"c", "-MD -c sub/src/s.c -o sub/obj/s.o", "remote c sub/obj/s.o sub/obj/s.d"},
	{"c", "-MMD -c a.c -o other.o", "remote c other.o other.d"},
	{"c", "-MD -MF deps.txt -c a.c -o a.o", "remote c a.o deps.txt"},
	{"c", "-MD -MQ a$b -MF foo.d -c a.c -o a.o", "remote c a.o foo.d"},
	{"c", "-MD -MG -c missinc.c", "remote c missinc.o missinc.d"},
	{"gcc", "-Wp,-MT,tgt,-MMD,wp.d -c a.c -o a.o", "remote c a.o wp.d"},
	{"clang", "-Wp,-MT,tgt,-MMD,wp.d -c a.c -o a.o", "unknown-option:-Wp,-MMD"},
	{"c", "-MD -MT CMakeFiles/x.dir/a.c.o -MF CMakeFiles/x.dir/a.c.o.d -o CMakeFiles/x.dir/a.c.o -c /src/a.c", "remote c CMakeFiles/x.dir/a.c.o CMakeFiles/x.dir/a.c.o.d"},
	{"c", "-MT a.lo -MD -MP -MF a.Tpo -c a.c -fPIC -DPIC -o .libs/a.o", "remote c .libs/a.o a.Tpo"},
	{"c", "-MM a.c b.c", "dependencies-only"},
	{"c", "-MM -MT foo.o a.c", "dependencies-only"},
	{"c", "-MD -MF x.d -c err.c -o err.o", "remote c err.o x.d"},
	{"c", "-S a.c -o out.s", "remote c out.s"},
	{"gcc", "-S -fverbose-asm a.c -o out.s", "sources:command-line c out.s"},
	{"c", "-S -masm=intel a.c", "remote c a.s"},
	{"c", "-fsyntax-only a.c", "sources:syntax-only c"},
	{"c", "-fsyntax-only -c -o x.o -MD a.c", "sources:syntax-only c x.d"},
	{"gcc", "-fsyntax-only -MD b.c", "sources:syntax-only c b.d a-b.d"},
	{"gcc", "-fsyntax-only -MD b.c -o x", "sources:syntax-only c x.d"},
	{"clang", "-fsyntax-only -MD b.c", "sources:syntax-only c b.d"},
	{"c", "-S -fsyntax-only -MD a.c", "sources:syntax-only c a.d"},
	{"c", "-fsyntax-only --coverage a.c", "not-reproducible:syntax-only"},
	{"c", "-fsyntax-only a.c b.c", "not-reproducible:several-sources"},
	{"c", "-fsyntax-only a.c a.o", "not-reproducible:several-sources"},
	{"c", "-fsyntax-only a.o", "no-source"},
	{"c", "-E -P a.c", "preprocess"},
	{"c", "-E -C warn.c", "preprocess"},
	{"c", "-E -MD -MF x.d a.c", "preprocess"},
	{"c", "-E a.c -o a.i", "sources:preprocess c a.i"},
	{"c", "-E -c -dM -MD a.c -o sub/a", "sources:preprocess c sub/a sub/a.d"},
	{"c", "-E a.c -o /c/tmp/tmp.cpp_stdout.Xy12.i", "preprocess"},
	{"c", "-E a.c -o -", "preprocess"},
	{"c", "-E a.c -o /dev/null", "preprocess"},
	{"c", "-E a.c b.c -o a.i", "preprocess"},
	{"c", "-E -save-temps a.c -o a.i", "preprocess"},
	{"c", "-E a.i -o b.i", "preprocess"},
	{"c", "-E conftest.c -o conftest.i", "preprocess"},
	{"c", "-dM -c a.c", "not-reproducible:dumps"},
	{"clang", "-MJ j.json -c a.c", "sources:side-file c a.o j.json"},
	{"clang", "-MJ j.json -fsyntax-only a.c", "not-reproducible:syntax-only"},
	{"clang", "-ftime-trace=t.json -c a.c", "sources:side-file c a.o t.json"},
	{"clang", "-ftime-trace=sub/ -c a.c -o x.b.o", "sources:side-file c x.b.o sub/x.b.json"},
	{"clang", "-ftime-trace=sub/ -fno-integrated-as -c a.c", "not-reproducible:side-file"},
	{"clang", "-ftime-trace=sub/ -save-temps -c a.c", "not-reproducible:side-file"},
	{"clang", "-ftime-trace=sub/ -c a.S", "not-reproducible:side-file"},
	{"c", "-c a.c -o -", "not-reproducible:stdout"},
	{"clang", "-O2 -c a.ll", "sources:language ir a.o"},
	{"clang", "-O2 -S d/a.bc", "sources:language ir a.s"},
	{"clang", "-c -x ir a.o -fthinlto-index=a.o.thinlto.bc -o b.o", "sources:input-file ir b.o"},
	{"clang", "-c -x ir a.o -fthinlto-index=/dev/null -g -gsplit-dwarf -fstack-usage -o b.o", "sources:input-file ir b.o b.su b.dwo"},
	{"clang", "-c --target=x86_64-pc-linux-gnu -O2 a.o -fthinlto-index=a.o.thinlto.bc -o b.o", "sources:input-file ir b.o"},
	{"clang", "-S a.1.2 -fthinlto-index=a.o.thinlto.bc", "sources:input-file ir a.1.s"},
	{"clang", "-S -x ir a.o -fthinlto-index=a.o.thinlto.bc", "sources:input-file ir a.s"},
	{"clang", "a.o -fthinlto-index=a.o.thinlto.bc -o b.o", "link"},
	{"clang", "-c a.o b.o -fthinlto-index=a.o.thinlto.bc", "no-source"},
	{"clang", "-c a.o -fthinlto-index=a.o.thinlto.bc", "not-reproducible:language"},
	{"clang", "-c -x ir a.o -fthinlto-index=a.o.thinlto.bc", "not-reproducible:language"},
	{"gcc", "-c a.o -fthinlto-index=a.o.thinlto.bc -o b.o", "no-source"},
	{"clang", "-c a.c -fthinlto-index=a.o.thinlto.bc", "not-reproducible:input-file"},
	{"clang", "-c a.ll -save-temps", "not-reproducible:language"},
	{"clang", "-c a.ll -Wa,-Iinc", "not-reproducible:language"},
	{"clang", "-c a.ll -fno-integrated-as", "not-reproducible:language"},
	{"clang", "-c a.ll -march=native", "not-reproducible:language"},
	{"clang", "-emit-llvm -c a.bc", "not-reproducible:language"},
	{"gcc", "-c -x ir a.ll", "not-reproducible:language"},
	{"clang", "-emit-llvm -c a.c -o a.bc", "sources:emit-llvm c a.bc"},
	{"clang", "-Xclang -ast-print -fsyntax-only -c b.c", "unknown-option:-ast-print"},
	{"clang", "-E -frewrite-includes a.c", "preprocess"},
	{"c", "selfmain.c", "link"},
	{"c", "-shared -fPIC a.c -o liba.so", "link"},
	{"c", "-c a.c b.c", "not-reproducible:several-sources"},
	{"c", "main.c -L. -lz -o prog", "link"},
	{"c", "-MD -c a.c b.c", "not-reproducible:several-sources"},
	{"c", "-c a.c -Xlinker --foo", "remote c a.o"},
	{"c", "-c a.c -o x.o -o y.o", "sources:several-outputs c y.o"},
	{"c", "-c a.c -o x.o -MD -MF x.o", "not-reproducible:several-outputs"},
	{"c", "-c a.c -o ./x.o -MD -MF x.o", "not-reproducible:several-outputs"},
	{"x", "-c err.cpp -o err.o", "remote c++ err.o"},
	{"c", "-c nosuchfile.c -o x.o", "remote c x.o"},
	{"c", "-Wsuch-warning-zz -c a.c", "remote c a.o"},
	{"c", "-c a.c -o no/such/dir/a.o", "remote c no/such/dir/a.o"},
	{"c", "-c a.c -o sub", "remote c sub"},
	{"gcc", "-fmax-errors=1 -c err.c", "remote c err.o"},
	{"c", "-Wall -Werror -c warn.c", "remote c warn.o"},
	{"c", "-c /src/err.c", "remote c err.o"},
	{"c", "-std=c++99zz -c a.c", "remote c a.o"},
	{"c", "-Wmisleading-indentation -c warn.c", "remote c warn.o"},
	{"c", "-Wall -c /src/warn.c", "remote c warn.o"},
	{"gcc", "-fno-diagnostics-show-caret -Wall -c warn.c", "remote c warn.o"},
	{"gcc", "-fdiagnostics-parseable-fixits -Wall -c warn.c", "remote c warn.o"},
	{"c", "-Wall -w -c warn.c", "remote c warn.o"},
	{"clang", "-Weverything -c warn.c", "remote c warn.o"},
	{"gcc", "-Wall -c warn.c", "remote c warn.o"},
	{"c", "-g3 -c a.c", "sources:debug c a.o"},
	{"c", "-g -c /src/a.c", "sources:debug c a.o"},
	{"gcc", "-g -frecord-gcc-switches -c a.c", "sources:command-line c a.o"},
	{"gcc", "-g -fno-working-directory -c a.c", "sources:debug c a.o"},
	{"c", "-g -fdebug-types-section -c plain.cpp", "sources:debug c++ plain.o"},
	{"c", "-g -gsplit-dwarf -c a.c -o a.o", "sources:split-dwarf c a.o a.dwo"},
	{"clang", "-g -fdebug-compilation-dir=. -c a.c", "sources:debug c a.o"},
	{"gcc", "-save-temps=cwd -c a.c -o sub/obj/a.o", "sources:save-temps c sub/obj/a.o sub/obj/a.i sub/obj/a.s a.i a.s"},
	{"clang", "-save-temps=cwd -c a.c -o sub/obj/a.o", "sources:save-temps c sub/obj/a.o sub/obj/a.i sub/obj/a.s sub/obj/a.bc a.i a.s a.bc"},
	{"gcc", "-O2 -fdump-tree-optimized=d/o.txt -c opt.c", "sources:side-file c opt.o d/o.txt"},
	{"gcc", "-O2 -fdump-tree-optimized=stderr -c opt.c", "not-reproducible:dumps"},
	{"gcc", "-O2 -fdump-tree-optimized=- -c opt.c", "not-reproducible:stdout"},
	{"gcc", "-O2 -fdump-tree-optimized -c opt.c", "not-reproducible:dumps"},
	{"gcc", "-O2 -fdump-tree-optimized-address=o.txt -c opt.c", "not-reproducible:dumps"},
	{"gcc", "-O2 -fdump-tree-all=o.txt -c opt.c", "not-reproducible:dumps"},
	{"c", "-dA -S a.c", "sources:command-line c a.s"},
	{"gcc", "-dP -S a.c", "not-reproducible:dumps"},
	{"gcc", "-O1 -fdump-rtl-expand -c opt.c -o o.o", "not-reproducible:dumps"},
	{"clang", "-O2 -fsave-optimization-record -c opt.c -o o.o", "sources:side-file c o.o o.opt.yaml"},
	{"c", "--coverage -c prof.c -o p.o", "sources:coverage c p.o p.gcno"},
	{"c", "-ftest-coverage -c prof.c", "sources:coverage c prof.o prof.gcno"},
	{"gcc", "-fprofile-arcs -c prof.c", "sources:coverage c prof.o"},
	{"clang", "-fprofile-arcs -c prof.c", "sources:coverage c prof.o prof.gcno"},
	{"gcc", "-O2 -fprofile-generate -c prof.c", "sources:profile c prof.o"},
	{"gcc", "-Wa,-Iinc -c s.s -o s.o", "sources:incbin assembler s.o"},
	{"g++", "-std=c++20 -fmodules-ts -c mod/mm.cpp -o mm.o", "sources:modules c++ mm.o"},
	{"g++", "-std=c++20 -fmodules-ts -c mod/use.cpp -o use.o", "sources:modules c++ use.o"},
	{"g++", "-fmodules-ts -fmodule-header -c x.h", "sources:modules c++ gcm.cache/header.gcm"},
	{"g++", "-fmodule-header -MD x.hpp", "sources:modules c++ gcm.cache/header.gcm x.d a-x.d"},
	{"g++", "-fmodules-ts -x c++-header -MD -c x -o d/x.gcm", "sources:modules c++ gcm.cache/header.gcm d/x.d"},
	{"g++", "-fmodules-ts -x c++-system-header -c vector", "sources:modules c++ gcm.cache/header.gcm"},
	{"g++", "-fmodules-ts -x c++-system-header --sysroot=/x -c vector", "not-reproducible:modules"},
	{"g++", "-fmodules-ts -x c++-user-header -c /x/x.h", "not-reproducible:modules"},
	{"g++", "-fmodule-header=user -x c++-system-header -c x.h", "not-reproducible:modules"},
	{"g++", "-fmodule-header=other -c x.h", "not-reproducible:modules"},
	{"g++", "-fmodule-header -S x.h", "not-reproducible:modules"},
	{"g++", "-fmodule-header -fstack-usage -c x.h", "not-reproducible:modules"},
	{"g++", "-fmodule-header -c x.h y.h", "not-reproducible:several-sources"},
	{"g++", "-x c++-user-header -c x.h", "not-reproducible:pch"},
	{"g++", "-fmodule-header -c a.cc", "not-reproducible:modules"},
	{"gcc", "-fmodule-header -c x.h", "not-reproducible:modules"},
	{"clang++", "-fmodule-header x.h -o x.pcm", "sources:modules c++ x.pcm"},
	{"clang++", "-fmodule-header=system x.h -o d/x.pcm", "sources:modules c++ d/x.pcm"},
	{"clang++", "-x c++-system-header --precompile vector -o v.pcm", "sources:modules c++ v.pcm"},
	{"clang++", "-fmodule-header x.h", "not-reproducible:modules"},
	{"clang++", "-fmodule-header -MD x.h -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-fmodule-header -c x.h -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-fmodule-header -save-temps x.h -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-fmodule-header=user /x/x.h -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-x c++-header -fmodule-header x.h -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-x c++-user-header -fmodule-header=system x.h -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-fmodule-header -c a.cc -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-fmodule-header --precompile a.cppm -o x.pcm", "not-reproducible:modules"},
	{"c", "-fmodule-header x.h -o x.pcm", "not-reproducible:modules"},
	{"clang++", "-x c++-user-header x.h -o x.pcm", "not-reproducible:pch"},
	{"g++", "-fmodules-ts -fmodule-mapper=m?x -c a.cc", "sources:modules c++ a.o"},
	{"g++", "-fmodules-ts -fmodule-mapper=|prog -c a.cc", "not-reproducible:modules"},
	{"g++", "-fmodules-ts -fmodule-mapper=host:7 -c a.cc", "not-reproducible:modules"},
	{"g++", "-fmodules-ts -fmodule-mapper==sock -c a.cc", "not-reproducible:modules"},
	{"g++", "-fmodules-ts -save-temps -c a.cc", "not-reproducible:modules"},
	{"g++", "-fmodules-ts -fmodule-only -c a.cc", "not-reproducible:modules"},
	{"g++", "-MD -MT d/a.cc.o -MF d/a.cc.o.d -fmodules-ts -fmodule-mapper=m -MD -fdeps-format=p1689r5 -x c++ -o d/a.cc.o -c a.cc", "sources:modules c++ d/a.cc.o d/a.cc.o.d d/a.cc.ddi"},
	{"g++", "-MD -fdeps-format=p1689r5 -c d/a.b.cc", "sources:side-file c++ a.b.o a.b.d a.b.ddi"},
	{"g++", "-MD -fdeps-format=p1689r5 -fdeps-file=x.ddi -c a.cc", "not-reproducible:side-file"},
	{"g++", "-E -x c++ a.cc -MT a.o.ddi -MD -MF a.o.ddi.d -fmodules-ts -fdeps-file=a.o.ddi -fdeps-target=a.o -fdeps-format=p1689r5 -o a.o.ddi.i", "preprocess"},
	{"g++", "-fmodules-ts -c a.cc b.cc", "not-reproducible:several-sources"},
	{"gcc", "-specs=x.specs -c macro.c", "remote c macro.o"},
	{"gcc", "--specs x.specs -c macro.c", "remote c macro.o"},
	{"gcc", "-specs=/dev/stdin -c macro.c", "not-reproducible:specs"},
	{"clang", "-specs=x.specs -c macro.c", "not-reproducible:specs"},
	{"clang", "--specs=x.specs -c macro.c", "not-reproducible:specs"},
	{"gcc", "-fplugin=./nope.so -c a.c", "not-reproducible:plugin"},
	{"gcc", "-fplugin=nope.so -c a.c", "not-reproducible:plugin"},
	{"gcc", "-fplugin=/x/../nope.so -c a.c", "not-reproducible:plugin"},
	{"gcc", "-fplugin= -c a.c", "not-reproducible:plugin"},
	{"gcc", "-iplugindir=/x -fplugin=annobin -c a.c", "not-reproducible:plugin"},
	{"gcc", "-fplugin=annobin -fplugin-arg-annobin-x=y -c a.c", "sources:plugin c a.o"},
	{"gcc", "-fplugin=/x/annobin.so -c a.c", "sources:plugin c a.o"},
	{"clang", "-fplugin=/x/annobin.so -c a.c", "not-reproducible:plugin"},
	{"gcc", "-fcompare-debug -c a.c", "not-reproducible:dumps"},
	{"gcc", "-fdump-passes -c empty.c", "not-reproducible:dumps"},
	{"c", "-O2 -mtune=native -c opt.c", "remote c opt.o"},
	{"c", "-O3 -mavx2 -c opt.c", "remote c opt.o"},
	{"x", "-c anon.cpp", "remote c++ anon.o"},
	{"c", "-fsanitize=undefined -c a.c", "remote c a.o"},
	{"c", "-ffunction-sections -fdata-sections -c a.c", "remote c a.o"},
	{"c", "-fcf-protection=full -c a.c", "remote c a.o"},
	{"clang", "--target=aarch64-linux-gnu -ffreestanding -nostdinc -c b.c", "remote c b.o"},
	{"clang", "-Xclang -disable-O0-optnone -c opt.c", "remote c opt.o"},
	{"clang", "-Xclang -mllvm -Xclang -inline-threshold=10 -c opt.c", "remote c opt.o"},
	{"clang", "-Xclang -mllvm -Xclang -load=x.so -c opt.c", "unknown-option:-mllvm,-load"},
	{"clang", "-Xclang -mllvm -c opt.c", "unknown-option:-mllvm"},
	{"clang", "-Xclang -fdebug-compilation-dir -Xclang -load -c opt.c", "unknown-option:-fdebug-compilation-dir"},
	{"clang", "-enable-trivial-auto-var-init-zero-knowing-it-will-be-removed-from-clang -c opt.c", "remote c opt.o"},
	{"gcc", "-foffload=disable -foffload-options=-lm -fgimple -Wa,-R -c opt.c", "remote c opt.o"},
	{"gcc", "-foffload-options=@x -c opt.c", "unknown-option:-foffload-options"},
	{"c", "-std=gnu11 -c opt.c", "remote c opt.o"},
	{"c", "-O2 -fwrapv -fno-strict-aliasing -fomit-frame-pointer -c opt.c", "remote c opt.o"},
	{"c", "@rsp/opts.rsp -c macro.c", "not-reproducible:response-file"},
	{"c", "@rsp/none.rsp -c macro.c", "not-reproducible:response-file"},
	{"gcc", "-Wa,@as.rsp -c a.c", "unknown-option:-Wa,@as.rsp"},
	{"c", "-### -c a.c", "query"},
	{"gcc-12", "-c a.c", "remote c a.o"},
	{"c++", "-c plain.cpp", "remote c++ plain.o"},
	{"c", "-c a.c -o a.o", "remote c a.o"},
	{"c", "-c a.c", "remote c a.o"},
	{"c", "-c b.c", "remote c b.o"},
	{"c", "-c opt.c", "remote c opt.o"},
	{"c", "-c a.c -o d/a.o", "remote c d/a.o"},

	// What makes a command no compile comes before what an option forbids.
	{"c", "", "no-source"},
	{"c", "-v", "query"},
	{"c", "--version", "query"},
	{"c", "-dumpmachine", "query"},
	{"c", "-print-file-name=libc.a", "query"},
	{"c", "--help=target -march=native", "query"},
	{"c", "-E -march=native a.c", "preprocess"},
	{"c", "-M -save-temps a.c", "dependencies-only"},
	{"c", "-o prog a.o b.o", "link"},
	{"c", "-fplugin=x.so a.c", "link"},
	{"c", "a.c b.o -o prog", "link"},
	{"c", "-c a.c b.o", "not-reproducible:several-sources"},
	{"c", "-xc - -c", "stdin"},
	{"c", "-", "stdin"},
	{"c", "-c a.h", "not-reproducible:pch"},
	{"c", "-c a.S", "sources:assembler assembler-with-cpp a.o"},
	{"c", "-x assembler-with-cpp -c a.c", "sources:assembler assembler-with-cpp a.o"},
	{"c", "-MD -c a.S", "sources:assembler assembler-with-cpp a.o a.d"},
	{"c", "-S a.S", "assembler"},
	{"c", "-c -g -gsplit-dwarf a.S", "sources:split-dwarf assembler-with-cpp a.o a.dwo"},
	{"gcc", "-c -g -gsplit-dwarf -fstack-usage d/a.s -o o/a.o", "sources:split-dwarf assembler o/a.o o/a.dwo"},
	{"c", "-c -save-temps=obj d/a.S -o o/b.o", "sources:save-temps assembler-with-cpp o/b.o o/b.s b.s a.s o/a.s"},
	{"c", "-c -save-temps a.s", "sources:save-temps assembler a.o"},
	{"c", "-c -save-temps -x assembler-with-cpp a.s", "assembler"},
	{"c", "-c --coverage a.S", "sources:coverage assembler-with-cpp a.o"},
	{"gcc", "-c -fcallgraph-info a.S", "assembler"},
	{"clang", "-c -ftime-trace a.S", "assembler"},
	{"c", "-S -save-temps a.S", "assembler"},
	{"c", "-c conftest.c", "probe"},
	{"c", "-c a.f90", "not-reproducible:language"},
	{"c", "-c a.cu", "not-reproducible:language"},

	{"c", "-xc -c /dev/stdin -o a.o", "stdin"},
	{"c", "-xc -c /dev/fd/63 -o a.o", "stdin"},
	{"c", "-include /dev/fd/3 -c a.c", "stdin"},
	{"c", "-MD -MF - -c a.c", "not-reproducible:stdout"},
	{"c", "-MD -MF/dev/stdout -c a.c", "not-reproducible:stdout"},
	{"c", "-Wp,-MD,/dev/stderr -c a.c", "not-reproducible:stdout"},
	{"c", "-MD -MF /dev/null -c a.c", "remote c a.o"},

	// Languages.
	{"c", "-x c++ -c a.c", "remote c++ a.o"},
	{"c", "-c a.c -x c++", "remote c a.o"},
	{"c", "-x c++ -x none -c a.c", "remote c a.o"},
	{"x", "-c a.c", "remote c++ a.o"},
	{"x", "-c a.i", "remote c++-cpp-output a.o"},
	{"x", "-x c -c a.cc", "remote c a.o"},
	{"c", "-c a.mm", "remote objective-c++ a.o"},
	{"c", "-c a.mi", "remote objective-c-cpp-output a.o"},
	{"c", "-x c-header -c a.h", "not-reproducible:pch"},

	// Names of outputs.
	{"c", "-c d/x.y.z.c", "remote c x.y.z.o"},
	{"c", "-xc -c d/noext", "remote c noext.o"},
	{"c", "-xc -c d.c/.c", "not-reproducible:output"},
	{"c", "-S d/a.c -o b", "remote c b"},
	{"c", "-oz/a.o -c a.c", "remote c z/a.o"},
	{"c", "-c a.c -o", "unknown-option:-o"},
	{"c", "-c a.c -o a.c", "not-reproducible:output"},
	{"c", "-c ./-a.c", "sources:source-name c -a.o"},
	{"clang", "-c -- -a.c", "sources:source-name c -a.o"},
	{"clang", "-c -- a.c", "remote c a.o"},
	{"gcc", "-c -- a.c", "unknown-option:--"},
	{"gcc", "-fstack-usage -c a.c -o d/b.x.o", "remote c d/b.x.o d/b.x.su"},

	// Arguments are not files.
	{"c", "-include a.c -c b.c", "remote c b.o"},
	{"c", "-I x.o -D Y.o -c b.c", "remote c b.o"},
	{"c", "-MF x.c -MD -c b.c", "remote c b.o x.c"},
	{"c", "-L . -l m -c b.c", "remote c b.o"},
	{"clang", "-Xclang -Wfoo -target x86_64-linux-gnu -c b.c", "remote c b.o"},

	// Unknown, forbidden, permitted.
	{"c", "-fsuch-flag -c a.c", "unknown-option:-fsuch-flag"},
	{"c", "-fsuch=flag -c a.c", "unknown-option:-fsuch"},
	{"c", "--frob -c a.c", "unknown-option:--frob"},
	{"c", "-msuch -c a.c", "unknown-option:-msuch"},
	{"c", "-Wsuch -fno-such -c a.c", "unknown-option:-fno-such"},
	{"clang", "-mllvm -stats -c a.c", "unknown-option:-mllvm,-stats"},
	{"clang", "-mllvm -inline-threshold=5 -Xclang -fcolor-diagnostics -c a.c", "remote c a.o"},
	{"gcc", "-dumpdir x -c a.c", "not-reproducible:dumps"},
	{"gcc", "-mmcu=x -H -c a.c", "sources:messages c a.o"},
	{"clang", "--gcc-toolchain=x -H -c a.c", "not-reproducible:messages"},
	{"clang", "--sysroot=x -fno-integrated-as -H -c a.c", "not-reproducible:messages"},
	{"clang", "--sysroot=x -H -c a.c", "sources:messages c a.o"},
	{"clang", "--sysroot=x -ffast-math -c a.c", "sources:toolchain c a.o"},
	{"clang", "--gcc-toolchain=x -Ofast -c a.c", "not-reproducible:toolchain"},
	{"clang", "--gcc-toolchain=x -c a.c", "remote c a.o"},
	{"clang", "--sysroot=x -c a.c", "remote c a.o"},
	{"clang", "-Xclang -load -Xclang x.so -c a.c", "unknown-option:-load"},
	{"clang", "-Xclang -Wp,x -c a.c", "remote c a.o"},
	{"gcc", "-Wp,-MD -c a.c", "unknown-option:-Wp"},
	{"clang", "-Wp,-MD -c a.c", "remote c a.o a.d"},
	{"clang", "-Wp,-MD,F,-MT,T -c a.c", "remote c a.o a.d"},
	{"gcc", "-Wa,-g -c a.c", "not-reproducible:directory"},
	{"gcc", "-g -flto -Wa,--gdwarf-5 -c a.c", "not-reproducible:directory"},
	{"gcc", "-g -Wa,--gdwarf-5 -c a.c", "sources:debug c a.o"},
	{"gcc", "-pipe -Wa,-g -c a.c", "sources:debug c a.o"},
	{"gcc", "-Wa,-g -c a.s", "sources:debug assembler a.o"},
	{"clang", "-fno-integrated-as -g -Wa,-g -c a.c", "not-reproducible:directory"},
	{"gcc", "-gstabs -c a.S", "not-reproducible:directory"},
	{"gcc", "-gdwarf-4 -c a.S", "sources:assembler assembler-with-cpp a.o"},
	{"gcc", "-Wa,--MD,x.d -c a.s", "sources:side-file assembler a.o x.d"},
	{"gcc", "-Wa,--MD,x.d -c a.c", "not-reproducible:directory"},
	{"gcc", "-Wa,--MD -c a.s", "unknown-option:-Wa,--MD"},
	{"gcc", "-include /dev/null -c a.c", "remote c a.o"},
	{"gcc", "-include /dev/stdin -c a.c", "stdin"},
	{"clang", "-fprofile-use=d -c a.c", "sources:input-file c a.o"},
	{"c", "-Wp,-P -c a.c", "unknown-option:-Wp,-P"},
	{"c", "-Xpreprocessor -DX -c a.c", "remote c a.o"},
	{"c", "-Xpreprocessor -fopenmp -c a.c", "unknown-option:-Wp,-fopenmp"},
	{"c", "-Wa,-adhln=x.lst -c a.c", "sources:side-file c a.o x.lst"},
	{"c", "-Wa,-adhln -c a.c", "not-reproducible:messages"},
	{"c", "-Wa,--noexecstack,-mrelax-relocations=no -c a.c", "remote c a.o"},
	{"c", "-Wa,--defsym,x=1,--noexecstack -Xassembler --defsym -Xassembler y=2 -c a.c", "remote c a.o"},
	{"c", "-Wa,--defsym -c a.c", "unknown-option:-Wa,--defsym"},
	{"gcc", "-Wa,-Iinc -c a.c", "sources:incbin c a.o"},
	{"c", "-Wa,-march=native -c a.c", "not-reproducible:native"},
	{"c", "-Xassembler -a -c a.c", "not-reproducible:messages"},
	{"c", "-march=native -c a.c", "remote c a.o"},
	{"c", "-mcpu=native+crc -c a.c", "not-reproducible:native"},
	{"c", "-march=armv8-a+simd -c a.c", "remote c a.o"},
	{"gcc", "-B. -c a.c", "remote c a.o"},
	{"clang", "-B. -c a.c", "remote c a.o"},
	{"gcc", "-fprofile-use=x -c a.c", "not-reproducible:profile"},
	{"clang", "-fprofile-use=x -c a.c", "sources:input-file c a.o"},
	{"c", "-fno-profile-arcs -fno-lto -c a.c", "remote c a.o"},
	{"gcc", "-wrapper x,y -c a.c", "not-reproducible:tool-path"},
	{"clang", "-wrapper x,y -c a.c", "unknown-option:-wrapper"},
	{"clang", "--config x.cfg -c a.c", "not-reproducible:tool-path"},
	{"clang", "--config=x.cfg -c a.c", "not-reproducible:tool-path"},
	{"clang", "--config-user-dir=/x -c a.c", "not-reproducible:tool-path"},
	{"gcc", "-fopt-info=x -c a.c", "sources:messages c a.o x"},
	{"gcc", "-aux-info x -c a.c", "sources:side-file c a.o x"},
	{"gcc", "-fno-directives-only -c a.c", "unknown-option:-fno-directives-only"},
	{"c", "-g -S a.c", "sources:debug c a.s"},
	{"gcc", "-g -c a.i", "sources:directory cpp-output a.o"},
	{"clang", "-g -c a.i", "sources:debug cpp-output a.o"},
	{"gcc", "-c a.i -x c", "sources:messages cpp-output a.o"},
	{"clang", "-MD -c a.i", "sources:messages cpp-output a.o a.d"},
	{"clang", "-g -flto -c a.c", "sources:lto c a.o"},
	{"clang", "-fsanitize=undefined,address -c d/a.c", "sources:directory c a.o"},
	{"c", "-fsanitize=undefined -c d/a.c", "remote c a.o"},
	{"gcc", "-dA -c a.c", "sources:command-line c a.o"},
	{"gcc", "-flto=auto -fno-fat-lto-objects -ffat-lto-objects -c a.c", "remote c a.o"},
	{"clang", "-MJ x.json -c a.c", "sources:side-file c a.o x.json"},
	{"clang", "-include-pch x.pch -c a.c", "sources:pch c a.o"},
	{"clang", "-Xclang -include-pch -Xclang x.pch -Xclang -include -Xclang x.h -c a.c", "sources:pch c a.o"},
	{"clang", "-Xclang -include-pch -Xclang -x -c a.c", "unknown-option:-include-pch"},
	{"clang", "-Xclang -include -c a.c", "unknown-option:-include"},
	{"clang", "-include-pch /dev/stdin -c a.c", "stdin"},
	{"clang", "-Xclang -emit-pch -c a.c", "not-reproducible:pch"},
	{"gcc", "-fpch-deps -c a.c", "not-reproducible:pch"},
	{"clang", "-fmodules -c a.c", "not-reproducible:modules"},
	{"clang++", "-std=c++20 -fmodule-file=A=a.pcm -fmodule-file=A:p=d/p.pcm -c a.cc", "sources:modules c++ a.o"},
	{"clang++", "-std=c++20 -fprebuilt-module-path=bmi -MD -c a.cc -o x.o", "sources:modules c++ x.o x.d"},
	{"clang++", "-fprebuilt-module-path=bmi -S a.cc", "sources:modules c++ a.s"},
	{"clang++", "-fmodule-file=a.pcm -c a.cc", "sources:modules c++ a.o"},
	{"clang++", "-fmodule-file= -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fmodule-file=/dev/stdin -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fmodule-file==a.pcm -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fmodule-file=A= -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fmodule-file=A=/dev/stdin -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fprebuilt-module-path= -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fprebuilt-module-path=bmi -fprebuilt-implicit-modules -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fprebuilt-module-path=bmi -c a.ii", "not-reproducible:modules"},
	{"clang", "-fprebuilt-module-path=bmi -c a.c", "not-reproducible:modules"},
	{"clang++", "-fprebuilt-module-path=bmi -save-temps -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fprebuilt-module-path=bmi -fsyntax-only a.cc", "not-reproducible:syntax-only"},
	{"clang++", "-fprebuilt-module-path=bmi -c a.cc b.cc", "not-reproducible:several-sources"},
	{"clang++", "-fprebuilt-module-path=bmi -E a.cc -o a.ii", "preprocess"},
	{"clang++", "-fmodule-output=a.pcm -c a.cc", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=d/a.pcm -c a.cppm", "sources:modules c++ a.o d/a.pcm"},
	{"clang++", "-fmodule-output -c a.cppm -o d/x.o", "sources:modules c++ d/x.o d/x.pcm"},
	{"clang++", "-x c++-module -fmodule-output=a.pcm -fmodule-file=B=b.pcm -MD -MT x.o -MF x.d -g -O2 -o x.o -c a.cc", "sources:modules c++ x.o x.d a.pcm"},
	{"clang++", "-fmodule-output=a.pcm -S a.cppm", "sources:modules c++ a.s a.pcm"},
	{"clang++", "-fmodule-output -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -fmodule-output=b.pcm -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=/dev/stdout -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.o -c a.cppm -o a.o", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.cppm -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -march=native -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -save-temps -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -g -gsplit-dwarf -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -ftime-trace -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -emit-llvm -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -flto -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -fno-integrated-as -c a.cppm", "not-reproducible:modules"},
	{"clang++", "-fmodule-output=a.pcm -fmodule-file=b.pcm -c a.cppm", "sources:modules c++ a.o a.pcm"},
	{"clang++", "--precompile -fmodule-output=a.pcm a.cppm -o a.pcm", "not-reproducible:modules"},
	{"clang++", "--precompile a.cppm -o d/a.pcm", "sources:modules c++ d/a.pcm"},
	{"clang++", "-x c++-module --precompile -MD a.cc -o a.pcm -fmodule-file=B=b.pcm", "sources:modules c++ a.pcm a.d"},
	{"clang++", "-c --precompile a.cppm -o a.pcm", "sources:modules c++ a.pcm"},
	{"clang++", "--precompile a.cppm", "not-reproducible:modules"},
	{"clang++", "--precompile a.cppm -o /dev/null", "not-reproducible:modules"},
	{"clang++", "--precompile a.cppm -o a.cppm", "not-reproducible:output"},
	{"clang++", "--precompile -S a.cppm -o a.pcm", "not-reproducible:modules"},
	{"clang++", "--precompile -fsyntax-only a.cppm -o a.pcm", "not-reproducible:modules"},
	{"clang++", "--precompile -march=native a.cppm -o a.pcm", "not-reproducible:modules"},
	{"clang++", "--precompile -save-temps a.cppm -o a.pcm", "not-reproducible:modules"},
	{"clang++", "--precompile a.h -o a.pch", "not-reproducible:pch"},
	{"clang++", "--precompile a.cc -o a.pcm", "not-reproducible:pch"},
	{"clang++", "--precompile a.cppm b.cppm -o a.pcm", "not-reproducible:pch"},
	{"clang++", "-c a.ccm", "not-reproducible:modules"},
	{"clang++", "-c a.pcm", "sources:modules c++-pcm a.o"},
	{"clang++", "-S -O2 -g -fmodule-file=B=b.pcm d/a.pcm -o d/x.s", "sources:modules c++-pcm d/x.s"},
	{"clang++", "-MD -c a.pcm", "not-reproducible:modules"},
	{"clang++", "-save-temps -c a.pcm", "not-reproducible:modules"},
	{"clang++", "-fsyntax-only a.pcm", "not-reproducible:syntax-only"},
	{"clang++", "-E a.pcm -o x.i", "preprocess"},
	{"clang++", "a.pcm -o x", "link"},
	{"clang++", "a.pcm b.cc -o x", "link"},
	{"g++", "-c a.pcm", "not-reproducible:language"},
	{"g++", "-c a.cppm", "not-reproducible:language"},
	{"g++", "-fmodule-file=A=a.pcm -c a.cc", "not-reproducible:modules"},
	{"g++", "-fprebuilt-module-path=bmi -c a.cc", "unknown-option:-fprebuilt-module-path"},
}

func testDriver(t testing.TB, name string) Driver {
	t.Helper()
	d, ok := DriverOf(name, name)
	if !ok {
		t.Fatalf("DriverOf(%q): unknown", name)
	}
	return d
}

// verdictOf a plan, as parseCases write it.
func verdictOf(p Plan) string {
	if p.Local {
		return p.Reason
	}
	s := "remote " + p.Language
	if p.Text != "" {
		s = "sources:" + p.Text + " " + p.Language
	}
	for _, o := range p.Outputs {
		s += " " + o.Name
	}
	return s
}

func TestParse(t *testing.T) {
	for _, c := range parseCases {
		for _, cc := range compilersOf(c.compilers) {
			p := Parse(words(c.args), testDriver(t, cc), nil)
			if got := verdictOf(p); got != c.want {
				t.Errorf("%s %s: %q, want %q", cc, c.args, got, c.want)
			}
			if p.Local && (p.Reason == "" || len(p.Outputs) > 0) || !p.Local && (p.Source == "" || len(p.Outputs) == 0 && !p.Syntax) {
				t.Errorf("%s %s: half a plan: %+v", cc, c.args, p)
			}
		}
	}
}

func TestParseEnvironment(t *testing.T) {
	for _, c := range []struct{ compiler, variable, want, word string }{
		{"gcc", "GCC_DIAGNOSTICS_LOG", "not-reproducible:environment", ""},
		{"gcc", "EXPERIMENTAL_SARIF_SOCKET", "not-reproducible:environment", ""},
		{"gcc", "LOCPATH", "not-reproducible:environment", ""},
		{"gcc", "INCLUDE", "remote c a.o", ""},
		{"clang", "SDKROOT", "not-reproducible:environment", ""},
		{"clang", "NCC_CPLUS_INCLUDE_PATH", "not-reproducible:environment", ""},
		{"clang", "WATCHOS_DEPLOYMENT_TARGET", "not-reproducible:environment", ""},
		{"clang", "INCLUDE", "remote c a.o", ""},
		{"clang", "INCLUDE", "not-reproducible:environment", "--target=x86_64-pc-windows-msvc"},
		{"clang", "EXTERNAL_INCLUDE", "not-reproducible:environment", "--target=x86_64-pc-windows-msvc"},
		{"clang", "OBJECT_MODE", "not-reproducible:environment", "--target=powerpc-ibm-aix"},
		{"clang", "OBJECT_MODE", "remote c a.o", ""},
		{"gcc", "GCC_EXEC_PREFIX", "not-reproducible:environment", ""},
		{"gcc", "SUNPRO_DEPENDENCIES", "not-reproducible:environment", ""},
		{"gcc", "CPATH", "remote c a.o", ""},
		{"gcc", "CCC_OVERRIDE_OPTIONS", "remote c a.o", ""},
		{"clang", "CCC_OVERRIDE_OPTIONS", "not-reproducible:environment", ""},
	} {
		p := Parse(words(c.word+" -c a.c"), testDriver(t, c.compiler), func(name string) (string, bool) { return "x", name == c.variable })
		if got := verdictOf(p); got != c.want {
			t.Errorf("%s %s with %s: %q, want %q", c.compiler, c.word, c.variable, got, c.want)
		}
	}
}

func TestDriverOf(t *testing.T) {
	for _, c := range []struct {
		argv0, real string
		want        string
	}{
		{"cc", "/usr/bin/x86_64-linux-gnu-gcc-12", "gcc"},
		{"c++", "/usr/bin/x86_64-linux-gnu-g++-12", "gcc ++"},
		{"/opt/bin/gcc", "/opt/bin/gcc", "gcc"},
		{"arm-none-eabi-g++", "/opt/arm/bin/arm-none-eabi-g++", "gcc ++"},
		{"gcc-4.8", "/usr/bin/gcc-4.8", "gcc"},
		{"clang", "/usr/lib/llvm-14/bin/clang", "clang"},
		{"clang++-14", "/usr/lib/llvm-14/bin/clang", "clang ++"},
		{"c++", "/usr/lib/llvm-14/bin/clang", "clang ++"},
		{"x86_64-linux-gnu-clang++", "/usr/lib/llvm-18/bin/clang-18", "clang ++"},
		{"clang-cl", "/usr/lib/llvm-14/bin/clang", ""},
		{"clang-cpp", "/usr/lib/llvm-14/bin/clang", ""},
		{"clang-format", "/usr/bin/clang-format-14", ""},
		{"mycl", "/usr/lib/llvm-14/bin/clang", ""},
		{"cl19", "/usr/lib/llvm-14/bin/clang", ""},
		{"my++14", "/usr/lib/llvm-14/bin/clang", "clang ++"},
		{"mycc", "/usr/lib/llvm-14/bin/clang", "clang"},
		{"mycc", "/usr/bin/x86_64-linux-gnu-gcc-12", "gcc"},
		{"c99", "/usr/bin/c99-gcc", ""},
		{"gfortran", "/usr/bin/gfortran-12", ""},
		{"ccache", "/usr/bin/ccache", ""},
		{"gcc", "/usr/bin/tcc", ""},
		{"x86_64-w64-mingw32-gcc", "/usr/bin/x86_64-w64-mingw32-gcc-win32", "gcc"},
		{"x86_64-w64-mingw32-gcc", "/usr/bin/x86_64-w64-mingw32-gcc-12-posix", "gcc"},
		{"i686-w64-mingw32-g++", "/usr/bin/i686-w64-mingw32-g++-win32", "gcc ++"},
		{"avr-gcc", "/usr/bin/avr-gcc-5.4.0", "gcc"},
		{"arm-none-eabi-gcc", "/opt/arm/bin/arm-none-eabi-gcc-10.3.1", "gcc"},
		{"gcc12", "/usr/local/bin/gcc12", "gcc"},
		{"g++48", "/usr/bin/g++48", "gcc ++"},
		{"cc", "/opt/conda/bin/x86_64-conda-linux-gnu-cc", "gcc"},
		{"gcc-ar", "/usr/bin/x86_64-linux-gnu-gcc-ar-12", ""},
		{"gcov", "/usr/bin/gcov-12", ""},
		{"gccgo", "/usr/bin/gccgo-12", ""},
		{"", "", ""},
	} {
		d, ok := DriverOf(c.argv0, c.real)
		got := ""
		if ok {
			got = [...]string{"gcc", "clang"}[d.Family]
			if d.CXX {
				got += " ++"
			}
		}
		if got != c.want {
			t.Errorf("DriverOf(%q, %q) = %q, want %q", c.argv0, c.real, got, c.want)
		}
	}
}

// TestHalves: which words reach which half.
func TestHalves(t *testing.T) {
	for _, c := range []struct {
		compiler     string
		major        int
		args         string
		here, remote string
	}{
		{"gcc", 12, "-O2 -Iinc -DX=1 -c a.c -o d/a.o -lm",
			"-E -fpch-preprocess -fdirectives-only -O2 -Iinc -DX=1 a.c", "-fpreprocessed -fdirectives-only -O2 -x c"},
		{"gcc", 10, "-O2 -Iinc -c a.c", "-E -fpch-preprocess -O2 -Iinc a.c", "-O2 -x cpp-output"},
		{"gcc", 12, "-traditional-cpp -c a.c", "-E -fpch-preprocess -traditional-cpp a.c", "-x cpp-output"},
		{"g++", 12, "-MD -MP -c a.c -o d/a.o",
			"-E -fpch-preprocess -fdirectives-only -MF d/a.d -MQ d/a.o -MD -MP a.c", "-fpreprocessed -fdirectives-only -x c++"},
		{"gcc", 12, "-pipe -finput-charset=latin1 -P -x c -c a.b",
			"-E -fpch-preprocess -fdirectives-only -finput-charset=latin1 -x c a.b", "-fpreprocessed -fdirectives-only -x c"},
		{"gcc", 12, "-flto -c a.c", "-E -fpch-preprocess -fdirectives-only -fworking-directory -flto a.c", "-fpreprocessed -fdirectives-only -flto -x c"},
		{"gcc", 12, "-O2 -c a.i", "", "-O2 -x cpp-output"},
		{"clang++", 14, "-g -I. -DX -c a.cc -Wl,-z", "-E -g -I. -DX a.cc -Wl,-z", "-g -fdebug-compilation-dir=/dir -x c++-cpp-output"},
		{"clang", 14, "-fsanitize=undefined -I. -DX -c a.c",
			"-E -frewrite-includes -fsanitize=undefined -I. -DX a.c", "-fsanitize=undefined -DX -x c"},
	} {
		p := Parse(words(c.args), testDriver(t, c.compiler), nil)
		if p.Local || p.Text != "" && !p.Inexact {
			t.Errorf("%s %s: %s %s", c.compiler, c.args, p.Reason, p.Text)
			continue
		}
		if got := strings.Join(p.Preprocess(c.major), " "); got != c.here {
			t.Errorf("%s %s: here %q, want %q", c.compiler, c.args, got, c.here)
		}
		args, lang := p.Remote(c.major, "/dir")
		if got := strings.Join(append(args, "-x", lang), " "); got != c.remote {
			t.Errorf("%s %s: there %q, want %q", c.compiler, c.args, got, c.remote)
		}
	}
}

// TestRemoteIsParsed: what the other half gets is again a command that the table
// lets travel, and that comes out the same: daemons take no other.
func TestRemoteIsParsed(t *testing.T) {
	all := slices.Clone(parseCases)
	for _, c := range equalCases {
		all = append(all, parseCases[0])
		all[len(all)-1].compilers, all[len(all)-1].args = c.compilers, c.args
	}
	for _, c := range all {
		for _, cc := range compilersOf(c.compilers) {
			p := Parse(words(c.args), testDriver(t, cc), nil)
			if p.Local || p.Text != "" {
				continue
			}
			args, _ := p.Remote(0, "/dir")
			mode := "-c"
			if p.Outputs[0].Kind == unit.OutputAssembly {
				mode = "-S"
			}
			again := Parse(append(slices.Clone(args), mode, "x.c"), testDriver(t, cc), nil)
			if again.Local {
				t.Errorf("%s %s: over there %q: %s", cc, c.args, args, again.Reason)
				continue
			}
			if same, _ := again.Remote(0, "/dir"); !slices.Equal(same, args) {
				t.Errorf("%s %s: %q becomes %q", cc, c.args, args, same)
			}
		}
	}
}

// FuzzParse: no command line makes Parse or the halves panic, and what another machine gets names no file
// of this one.
func FuzzParse(f *testing.F) {
	for _, c := range parseCases {
		f.Add(c.args, strings.Contains(c.compilers, "clang"))
	}
	f.Fuzz(func(t *testing.T, args string, clang bool) {
		d := Driver{Family: GCC}
		if clang {
			d.Family = Clang
		}
		argv := strings.Split(args, " ")
		p := Parse(argv, d, nil)
		if p.Local != (p.Reason != "") {
			t.Fatalf("%q: local %v, reason %q", argv, p.Local, p.Reason)
		}
		if p.Local {
			return
		}
		p.List(12)
		p.IncludeDirs()
		if !slices.Equal(p.Whole(), argv) {
			t.Fatalf("%q: whole %q", argv, p.Whole())
		}
		if p.Text != "" {
			return
		}
		p.Preprocess(12)
		remote, lang := p.Remote(12, "/dir")
		if lang == "" || len(p.Outputs) == 0 || p.Outputs[0].Name == "" {
			t.Fatalf("%q: language %q, outputs %v", argv, lang, p.Outputs)
		}
		for _, w := range remote {
			switch {
			case strings.HasPrefix(w, "-I"), strings.HasPrefix(w, "-M"), strings.HasPrefix(w, "-o"), strings.HasPrefix(w, "@"), strings.HasPrefix(w, "-fplugin"):
				t.Fatalf("%q: %q goes to the other machine", argv, w)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	argv := words("-DHAVE_CONFIG_H -I. -I.. -Iinclude -I/usr/include/glib-2.0 -D_GNU_SOURCE -DNDEBUG -O2 -g -pipe -Wall -Wextra -Wno-unused-parameter -Werror=format-security -fstack-protector-strong -fPIC -fno-strict-aliasing -fvisibility=hidden -std=gnu11 -mavx2 -MT a.o -MD -MP -MF .deps/a.Tpo -c -o a.o ../src/a.c")
	d := testDriver(b, "gcc")
	b.ReportAllocs()
	for b.Loop() {
		p := Parse(argv, d, nil)
		p.Preprocess(12)
		p.Remote(12, "/dir")
	}
}
