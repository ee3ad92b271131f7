package toolchains

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOddPrefixes: compilers that are installed where no distribution puts them, with an assembler of their own, are sent with their
// places.
func TestOddPrefixes(t *testing.T) {
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
			copyGCC(t, gcc, filepath.Join(dir, "store/0fx5p8mqk1n3-gcc-12.2.0"))
			for _, link := range [][2]string{{"store/0fx5p8mqk1n3-gcc-12.2.0", "profile-7-link"}, {"profile-7-link", "profile"}} {
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
