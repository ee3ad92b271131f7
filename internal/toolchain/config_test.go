package toolchain

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestClangConfiguration: a configuration file is a part of the compiler; one that
// means this machine makes it unknown.
func TestClangConfiguration(t *testing.T) {
	dir := t.TempDir()
	clang := filepath.Join(dir, "clang")
	cfg := filepath.Join(dir, "clang.cfg")
	write(t, clang, "#!/bin/sh\ncase $1 in\n-v) echo 'clang version 18.1.0' >&2; echo 'Target: test-linux' >&2; echo 'Configuration file: "+cfg+"' >&2;;\n"+
		"-print-prog-name=*) echo ${1#*=};;\n*) exit 1;;\nesac\n")
	var c Cache
	seen := make(map[any]bool)
	for _, text := range []string{"--gcc-triple=x86_64-redhat-linux\n", "# ours\n-O2 \\\n -DX=1\n-stdlib=libc++ -fstack-protector-strong\n", ""} {
		write(t, cfg, text)
		id := identifyOK(t, &c, clang).ID
		if seen[id] {
			t.Errorf("%q changes nothing", text)
		}
		seen[id] = true
	}
	for _, text := range []string{"-march=native\n", "-O2\n-mcpu=native", "@other.cfg\n", "-I/opt/include\n", "-isystem x\n", "--sysroot=<CFGDIR>\n",
		"-fplugin=x.so\n", "-fpass-plugin=x.so", "-include x.h", "-mllvm -x", "-D X", "-fprofile-use=/x", "-fms-compatibility"} {
		write(t, cfg, text)
		if tc, err := c.Identify(t.Context(), clang); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %+v, %v", text, tc, err)
		}
	}
}

// TestMicrosoftByDefault: a clang that looks for headers as Microsoft's compiler does is unknown unless commands say so.
func TestMicrosoftByDefault(t *testing.T) {
	var c Cache
	for _, target := range []string{"x86_64-pc-windows-msvc19.33.0", "x86_64-unknown-uefi"} {
		clang := filepath.Join(t.TempDir(), "clang")
		write(t, clang, "#!/bin/sh\necho 'clang version 18.1.0' >&2; echo 'Target: "+target+"' >&2\n")
		if tc, err := c.Identify(t.Context(), clang); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %+v, %v", target, tc, err)
		}
	}
}

// TestConfigurationAppears: a compiler is another one as soon as there is a file that it reads of its own accord.
func TestConfigurationAppears(t *testing.T) {
	dir := t.TempDir()
	clang := filepath.Join(dir, "x-clang-18")
	write(t, clang, `#!/bin/sh
case $1 in
-v)
	echo 'clang version 18.1.0' >&2
	echo 'Target: test-linux' >&2
	for f in "${0%/*}"/*.cfg; do
		test -e "$f" && echo "Configuration file: $f" >&2
	done;;
-print-prog-name=*) echo ${1#*=};;
*) exit 1;;
esac
exit 0
`)
	var c Cache
	seen := map[any]bool{identifyOK(t, &c, clang).ID: true}
	for _, name := range []string{"clang", "x-clang", "x", "test-linux", "test-linux-clang"} {
		write(t, filepath.Join(dir, name+".cfg"), "-DX="+name+"\n")
		if id := identifyOK(t, &c, clang).ID; seen[id] {
			t.Errorf("%s.cfg changes nothing", name)
		} else {
			seen[id] = true
		}
	}
}

// TestSpecsAppear: gcc looks for specs in four places at least, whether it has a libgcc.a or not.
func TestSpecsAppear(t *testing.T) {
	t.Run("with", func(t *testing.T) { specsAppear(t, "$lib/libgcc.a") })
	t.Run("without", func(t *testing.T) { specsAppear(t, "libgcc.a") })
}

func specsAppear(t *testing.T, libgcc string) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "lib/gcc/test-linux/12")
	tools := filepath.Join(dir, "test-linux/lib")
	for _, d := range []string{lib, filepath.Join(tools, "test-linux/12"), filepath.Join(dir, "bin")} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(lib, "cc1"), "cc1")
	gcc := filepath.Join(dir, "bin/gcc")
	write(t, gcc, "#!/bin/sh\nlib="+lib+" tools="+tools+`
case $1 in
-v)
	for f in $lib/specs $lib/../specs $tools/specs $tools/test-linux/12/specs; do
		test -e $f && echo "Reading specs from $f" >&2
	done
	echo 'Target: test-linux' >&2
	echo 'gcc version 12.3.4' >&2;;
-print-prog-name=cc1) echo $lib/cc1;;
-print-prog-name=*) echo ${1#*=};;
-print-libgcc-file-name) echo `+libgcc+`;;
-print-search-dirs) echo "libraries: =$lib/:$tools/test-linux/12/:$tools/";;
*) exit 1;;
esac
`)
	var c Cache
	seen := map[any]bool{identifyOK(t, &c, gcc).ID: true}
	for _, name := range []string{filepath.Join(lib, "specs"), filepath.Join(lib, "../specs"), filepath.Join(tools, "specs"), filepath.Join(tools, "test-linux/12/specs")} {
		write(t, name, "%rename cpp "+name+"\n")
		if id := identifyOK(t, &c, gcc).ID; seen[id] {
			t.Errorf("%s changes nothing", name)
		} else {
			seen[id] = true
		}
	}
}
