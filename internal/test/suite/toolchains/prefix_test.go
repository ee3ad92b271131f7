package toolchains

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestOddPrefixes: compilers that are installed where no distribution puts them, with an assembler of their own, are sent with their
// places.
func TestOddPrefixes(t *testing.T) {
	part.Skip(t)
	gcc := compilers(t, "gcc")[0]
	target := ask(t, gcc, "-dumpmachine")
	own := "lib/gcc/" + target + "/" + ask(t, gcc, "-dumpversion")
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	for what, install := range map[string]func(t *testing.T) string{
		"opt":  func(t *testing.T) string { return copyGCC(t, gcc, below(t, "/opt")) },
		"home": func(t *testing.T) string { return copyGCC(t, gcc, filepath.Join(below(t, home), "a compiler")) },
		// A profile leads to a generation, which leads into a store.
		"store": func(t *testing.T) string {
			dir := below(t, "/opt")
			nix(t, gcc, filepath.Join(dir, "store"))
			for _, link := range [][2]string{{"store/0g-gcc-12.2.0", "profile-7-link"}, {"profile-7-link", "profile"}} {
				if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
					t.Fatal(err)
				}
			}
			return filepath.Join(dir, "profile/bin/gcc")
		},
	} {
		t.Run(what, func(t *testing.T) {
			cc := install(t)
			s := prepare(t, bare)
			s.start()
			s.write("x.c", cSource)
			s.remote(cc, "-O2", "-g", "-c", "x.c", "-o", "x.o")
			if what == "store" {
				wrapper := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(cc))), "store/4w-gcc-wrapper-12.2.0/bin/gcc")
				if got := s.run("toolchain", "pack", wrapper); !strings.Contains(got.out, "it is a script") {
					t.Errorf("a script is packed: %+v", got)
				}
			}
			out := s.run("toolchain", "pack", cc).out
			for _, part := range []string{"bin/gcc", own + "/cc1", target + "/bin/as"} {
				if prefix := filepath.Dir(filepath.Dir(cc)); what != "store" && !strings.Contains(out, fmt.Sprintf("%s/%s\n", prefix, part)) {
					t.Errorf("not packed below its prefix: %s\n%s", part, out)
				}
			}
		})
	}
}

// ask returns what a compiler answers to a word.
func ask(t *testing.T, cc, word string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), cc, word).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// copyGCC installs a gcc below a prefix: it finds its parts by where it is itself.
func copyGCC(t *testing.T, gcc, prefix string) string {
	t.Helper()
	target := ask(t, gcc, "-dumpmachine")
	own := "lib/gcc/" + target + "/" + ask(t, gcc, "-dumpversion")
	copyFile := func(from, to string) {
		t.Helper()
		from, err := filepath.EvalSymlinks(from)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to = filepath.Join(prefix, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path, err := exec.LookPath(gcc)
	if err != nil {
		t.Fatal(err)
	}
	copyFile(path, "bin/gcc")
	copyFile(ask(t, gcc, "-print-prog-name=cc1"), own+"/cc1")
	as, err := exec.LookPath("as")
	if err != nil {
		t.Fatal(err)
	}
	copyFile(as, target+"/bin/as")
	headers := filepath.Join(filepath.Dir(ask(t, gcc, "-print-libgcc-file-name")), "include")
	if err := os.CopyFS(filepath.Join(prefix, own, "include"), os.DirFS(headers)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(prefix, "bin/gcc")
}

// below makes a directory in dir.
func below(t *testing.T, dir string) string {
	t.Helper()
	for _, own := range []string{"/tmp/", "/run/", "/dev/"} {
		if strings.HasPrefix(dir+"/", own) {
			t.Skipf("private trees have a %s of their own", own)
		}
	}
	made, err := os.MkdirTemp(dir, "rdistcc-test-")
	if err != nil {
		t.Skipf("needs to write to %s (as root): %v", dir, err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(made); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(made, 0o755); err != nil {
		t.Fatal(err)
	}
	return made
}

// nix makes a store as Nix does: compiler, assembler and libraries are in directories of their own, the
// programs name their loader and their libraries there, nothing can be written or has a time, and equal files are one. Beside the
// gcc is a script that adds words to it.
func nix(t *testing.T, gcc, store string) {
	t.Helper()
	if _, err := exec.LookPath("patchelf"); err != nil {
		need.Skipf(t, need.Tools, "needs patchelf: %v", err)
	}
	sh := func(script string, args ...string) {
		t.Helper()
		cmd := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	target := ask(t, gcc, "-dumpmachine")
	own := "lib/gcc/" + target + "/" + ask(t, gcc, "-dumpversion")
	copyGCC(t, gcc, filepath.Join(store, "0g-gcc-12.2.0"))
	t.Cleanup(func() { sh(`chmod -R u+w "$1"`, store) })
	sh(`cd "$1"
mkdir -p 1c-glibc/lib 2b-binutils/bin 3l-libs/lib 4w-gcc-wrapper-12.2.0/bin .links
mv "0g-gcc-12.2.0/$3/bin/as" 2b-binutils/bin/as
ln -s "$1/2b-binutils/bin/as" "0g-gcc-12.2.0/$3/bin/as"
for f in 0g-gcc-12.2.0/bin/gcc "0g-gcc-12.2.0/$2/cc1" 2b-binutils/bin/as; do
	ldd "$f" | awk '/=>/ { print $3 }' | while read -r lib; do
		case $lib in */libc.so*|*/libm.so*) to=1c-glibc/lib ;; *) to=3l-libs/lib ;; esac
		cp -L "$lib" $to/
	done
	loader=$(patchelf --print-interpreter "$f")
	cp -L "$loader" 1c-glibc/lib/
	patchelf --set-interpreter "$1/1c-glibc/lib/${loader##*/}" --set-rpath "$1/1c-glibc/lib:$1/3l-libs/lib" "$f"
done
for f in 3l-libs/lib/*; do patchelf --set-rpath "$1/1c-glibc/lib:$1/3l-libs/lib" "$f"; done
cat > 4w-gcc-wrapper-12.2.0/bin/gcc <<END
#!/bin/sh
exec $1/0g-gcc-12.2.0/bin/gcc -B$1/2b-binutils/bin/ -idirafter /usr/include "\$@"
END
chmod +x 4w-gcc-wrapper-12.2.0/bin/gcc
find . -path ./.links -prune -o -type f -print | while read -r f; do
	sum=$(sha256sum < "$f"); sum=${sum%% *}
	[ -e ".links/$sum" ] || ln "$f" ".links/$sum"
	ln -f ".links/$sum" "$f"
done
find . -type f -perm /111 -exec chmod 0555 {} +
find . -type f ! -perm /111 -exec chmod 0444 {} +
find . -exec touch -h -d @1 {} +
find . -type d -exec chmod 0555 {} +`, store, own, target)
}
