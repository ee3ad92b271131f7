package compile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestVariablesOfCompilers: of the names in the installed compilers that are variables by their looks, each is known to matter, to go
// along with jobs, or to change nothing that a compile leaves.
func TestVariablesOfCompilers(t *testing.T) {
	if testing.Short() {
		t.Skip("reads compilers")
	}
	turns.Skip(t)
	known := knownVariables("COLLECT_GCC", "COLLECT_GCC_OPTIONS", "COLLECT_LTO_WRAPPER", "COLLECT_NO_DEMANGLE", // the driver sets them, or they are for links
		"CLANG_CRASH_DIAGNOSTICS_DIR", "GCC_NOAPPORT", // after a crash
		"CLANG_TOOLCHAIN_PROGRAM_TIMEOUT", // for programs that look for graphics processors
		"CC_LOG_DIAGNOSTICS_FILE", "CC_PRINT_HEADERS_FILE", "CC_PRINT_HEADERS_FILTERING",
		"CC_PRINT_INTERNAL_STAT_FILE", "CC_PRINT_OPTIONS_FILE", "CC_PRINT_PROC_STAT_FILE", // only with those without the last word
		"CLANG_MODULE_CACHE_PATH", // of modules that no host makes
	)
	looks := regexp.MustCompile(`^(?:(?:CC|CCC|CLANG|COLLECT|EXPERIMENTAL|FORCE|GCC|QA|RC|SCE)_[A-Z0-9_]{3,40}|[A-Z0-9_]{2,20}_(?:DEPLOYMENT_TARGET|INCLUDE_PATH|SDK_DIR|DIAGNOSTICS_LOG)|SDKROOT)$`)
	looked := 0
	for _, file := range programsOfCompilers() {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		looked++
		for name := range bytes.SplitSeq(b, []byte{0}) {
			if n := len(name); 6 < n && n < 60 && 'A' <= name[0] && name[0] <= 'Z' && looks.Match(name) && !slices.Contains(known, string(name)) {
				t.Errorf("%s has %s", file, name)
			}
		}
	}
	if looked == 0 {
		need.Skipf(t, need.Tools, "no compiler")
	}
}

// knownVariables returns the variables that matter, that go along with jobs, and others.
func knownVariables(others ...string) []string {
	return slices.Concat(gccVariables[:], roots[:], clangVariables[:], targetVariables[:], appleVariables[:], travelling[:], LibraryVariables[:], others)
}

// TestVariablesRead: the variables that the installed compilers ask the C library for while they compile are known, also those whose names
// they put together (GCC_ROOT).
func TestVariablesRead(t *testing.T) {
	if testing.Short() {
		t.Skip("runs compilers")
	}
	turns.Skip(t)
	cc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	dir := t.TempDir()
	log, tell := dir+"/log", dir+"/tell.so"
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tell.c", tellVariables)
	write("a.c", "int x;\nasm(\".globl y\");\n")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", tell, dir+"/tell.c", "-ldl").CombinedOutput(); err != nil {
		need.Skipf(t, need.Tools, "no library can be made: %s", out)
	}
	known := knownVariables("PATH", "HOME", "TMPDIR", "TMP", "TEMP", "TEMPDIR", "XDG_CACHE_HOME", // where temporary files and caches are
		"MAKEFLAGS", "CLANG_MODULE_CACHE_PATH", "CLANG_CRASH_DIAGNOSTICS_DIR", // of links with LTO, of modules that no host makes, after a crash
		"ELF_PACKAGE_METADATA", "NO_PKG_METADATA", // of Debian's links
		"GLIBCXX_TUNABLES",            // memory for exceptions
		"bar", "LLVM_IGNORED_ENV_VAR", // LLVM tests with them whether it may ask
	)
	asked := 0
	for _, pattern := range []string{"/usr/bin/gcc-[0-9]*", "/usr/bin/clang-[0-9]*"} {
		compilers, _ := filepath.Glob(pattern) // the pattern is well formed
		for _, compiler := range compilers {
			for _, words := range []string{"-g -O2 -MD", "-x c++", "-x assembler", "--target=x86_64-pc-windows-msvc", "--target=x86_64-w64-mingw32", "--target=arm64-apple-macos", "--target=x86_64-scei-ps4", "--target=s390x-ibm-zos"} {
				if strings.HasPrefix(words, "--target") && !strings.Contains(compiler, "clang") {
					continue
				}
				source := dir + "/a.c"
				if strings.HasSuffix(words, "assembler") {
					source = os.DevNull
				}
				cmd := exec.Command(compiler, append(strings.Fields(words), "-c", source, "-o", dir+"/a.o")...)
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+tell, "TELL="+log)
				err := cmd.Run()
				b, _ := os.ReadFile(log)
				_ = os.Remove(log)
				// A version lacks a target, or has crashed: it asks for this then, whatever its status, and a program asks that looks for symbols.
				if err != nil || bytes.Contains(b, []byte("LLVM_DISABLE_SYMBOLIZATION")) {
					continue
				}
				for name := range strings.Lines(string(b)) {
					if name = strings.TrimSpace(name); name != "" {
						asked++
						if !slices.Contains(known, name) {
							t.Errorf("%s asks for %s", compiler, name)
							known = append(known, name)
						}
					}
				}
			}
		}
	}
	if asked == 0 {
		need.Skipf(t, need.Tools, "no compiler that loads libraries")
	}
}

// tellVariables is a library that writes the names that a program asks the C library for to the file in TELL.
const tellVariables = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
static char *find(const char *name, const char *of) {
	char *(*next)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, of);
	char *log = next("TELL"), line[256];
	size_t n = strlen(name);
	int fd = log && n < sizeof line - 1 ? open(log, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
	if (fd >= 0) {
		memcpy(line, name, n);
		line[n] = '\n';
		if (write(fd, line, n + 1) < 0) {}
		close(fd);
	}
	return next(name);
}
char *getenv(const char *name) { return find(name, "getenv"); }
char *secure_getenv(const char *name) { return find(name, "secure_getenv"); }
`

// TestRootsOfGCC: a variable that names another directory than the compiler's own keeps a command here.
func TestRootsOfGCC(t *testing.T) {
	d, _ := DriverOf("gcc", "/opt/gcc/14/bin/gcc")
	for value, here := range map[string]bool{"/opt/gcc/14": false, "/opt/gcc/14/": false, "/opt/gcc/13": true, "/opt/gcc": true, "": true} {
		for _, name := range roots {
			p := Parse([]string{"-c", "a.c"}, d, func(n string) (string, bool) { return value, n == name })
			if p.Local != here {
				t.Errorf("%s=%s: Local = %v, want %v", name, value, p.Local, here)
			}
		}
	}
	p := Parse([]string{"-c", "a.c"}, Driver{Family: Clang}, func(n string) (string, bool) { return "/x", n == "GCC_ROOT" })
	if p.Local {
		t.Error("clang does not heed GCC_ROOT")
	}
}

// TestVariablesOfTargets: a name of clang that may choose the target makes the variables of targets count.
func TestVariablesOfTargets(t *testing.T) {
	for name, here := range map[string]bool{"clang": false, "clang++-14": false, "x86_64-pc-windows-msvc-clang": true, "i686-pc-windows-msvc-clang++": true} {
		d, ok := DriverOf("/opt/bin/"+name, "/usr/lib/llvm-14/bin/clang")
		p := Parse([]string{"-c", "a.c"}, d, func(n string) (string, bool) { return "/x", n == "INCLUDE" })
		if !ok || p.Local != here {
			t.Errorf("%s with INCLUDE: Local = %v, want %v", name, p.Local, here)
		}
	}
}

// TestVariablesThatKeepHere: variables that no compiler of this machine asks for, but others do.
func TestVariablesThatKeepHere(t *testing.T) {
	for words, family := range map[string]Family{
		"GCC_CPUINFO -mcpu=native -c a.c": GCC, "SDKROOT -c a.c": GCC, "path_ROOT -c a.c": GCC,
		"LLVM_CPUINFO -march=native -c a.c": Clang, "CLANG_CONFIG_PATH --target=s390x-ibm-zos -c a.c": Clang,
	} {
		argv := strings.Fields(words)
		if p := Parse(argv[1:], Driver{Family: family}, func(n string) (string, bool) { return "/x", n == argv[0] }); !p.Local {
			t.Errorf("%s: not Local", words)
		}
		if p := Parse([]string{"-c", "a.c"}, Driver{Family: family}, func(string) (string, bool) { return "", false }); p.Local {
			t.Errorf("Local without variables: %s", p.Reason)
		}
	}
}

// TestVariablesOfApple: what Darwin's gcc reads keeps a command here unless the gcc is certainly for another system.
func TestVariablesOfApple(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		here bool
	}{
		"x86_64-linux-gnu-gcc-12": {"\x7fELF\x02..x86_64-linux-gnu..gcc/Darwin-Options.html..LIBRARY_PATH", false},
		"gcc":                     {"\x7fELF\x02..x86_64-pc-linux-gnu..", false},
		"gcc-14":                  {"\x7fELF\x02..x86_64-apple-darwin20..", true},
		"arm64-gcc":               {"\x7fELF\x02..arm64..SDKROOT", true},
		"cc":                      {"#!/bin/sh\nexec /opt/osxcross/bin/x86_64-apple-darwin20-gcc \"$@\"\n", true},
		"g++":                     {"", true},
		"missing-gcc":             {"", true},
	} {
		file := filepath.Join(dir, name)
		if name != "missing-gcc" {
			must(t, os.WriteFile(file, []byte(c.text), 0o777))
		}
		for _, variable := range []string{"SDKROOT", "MACOSX_DEPLOYMENT_TARGET"} {
			d, _ := DriverOf(name, file)
			if p := Parse([]string{"-c", "a.c"}, d, func(n string) (string, bool) { return "/x", n == variable }); p.Local != c.here {
				t.Errorf("%s with %s: Local = %v, want %v", name, variable, p.Local, c.here)
			}
		}
	}
}

// TestFoundByPath: a clang that compiles for Windows stays here if it finds headers there by a program that a host does not find.
func TestFoundByPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mingw/bin/x86_64-w64-mingw32-gcc", "msvc/bin/cl.exe", "other/bin/aarch64-linux-gnu-gcc", "llvm/bin/i686-w64-mingw32-gcc"} {
		must(t, os.MkdirAll(filepath.Dir(dir+"/"+name), 0o777))
		must(t, os.WriteFile(dir+"/"+name, nil, 0o777))
	}
	const usual = ":/usr/local/bin:/usr/bin:/bin"
	for path, here := range map[string]bool{
		usual[1:]: false, dir + "/mingw/bin" + usual: true, usual[1:] + ":" + dir + "/mingw/bin": true, dir + "/msvc/bin" + usual: true,
		dir + "/other/bin" + usual: false, dir + "/llvm/bin" + usual: false, "." + usual: true, "": true,
	} {
		for called, target := range map[string]string{"clang": "--target=x86_64-w64-mingw32", "clang-19": "--target=x86_64-pc-windows-msvc", "x86_64-w64-mingw32-clang": "-O2"} {
			d, _ := DriverOf(called, dir+"/llvm/bin/clang-19")
			getenv := func(n string) (string, bool) { return path, n == "PATH" }
			if p := Parse([]string{target, "-c", "a.c"}, d, getenv); p.Local != here {
				t.Errorf("%s %s with PATH=%s: Local = %v, want %v", called, target, path, p.Local, here)
			}
			if p := Parse([]string{"--target=aarch64-linux-gnu", "-c", "a.c"}, Driver{Family: Clang}, getenv); p.Local {
				t.Errorf("for Linux with PATH=%s: Local", path)
			}
		}
	}
}

// TestOddGCCForWindows: a program by which clang may find headers for Windows, and of which no compiler's identity tells, keeps compiles
// for Windows here though hosts look in its directory too.
func TestOddGCCForWindows(t *testing.T) {
	was := hostPath
	t.Cleanup(func() { hostPath = was })
	for name, here := range map[string]bool{"x86_64-w64-mingw32ucrt-gcc": false, "i386-w64-mingw32-gcc": false, "x86_64-acme-mingw32-gcc": true, "mipsel-w64-windows-gnu-gcc": true,
		"x86_64-w64-mingw32-gcc-12": false, "x86_64-linux-gnu-gcc": false} {
		hostPath[1] = t.TempDir()
		must(t, os.WriteFile(hostPath[1]+"/"+name, nil, 0o777))
		path := strings.Join(hostPath[:], ":")
		getenv := func(n string) (string, bool) { return path, n == "PATH" }
		if p := Parse([]string{"--target=x86_64-acme-mingw32", "-c", "a.c"}, Driver{Family: Clang}, getenv); p.Local != here {
			t.Errorf("%s: Local = %v, want %v", name, p.Local, here)
		}
	}
}

// programsOfCompilers returns what reads the environment in the installed compilers: drivers, gcc's cc1, and clang's library.
func programsOfCompilers() (files []string) {
	for _, pattern := range []string{"/usr/bin/gcc-[0-9]*", "/usr/bin/clang-[0-9]*", "/usr/lib/llvm-*/lib/libclang-cpp.so.*"} {
		found, _ := filepath.Glob(pattern) // the pattern is well formed
		for _, file := range found {
			files = append(files, file)
			if !strings.Contains(file, "/gcc-") {
				continue
			}
			if out, err := exec.Command(file, "-print-prog-name=cc1").Output(); err == nil {
				files = append(files, strings.TrimSpace(string(out)))
			}
		}
	}
	return files
}
