package privatetree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plant copies files of this machine below a directory, under the names that they have here, with the links on the way.
func plant(t *testing.T, root string, files []string) {
	t.Helper()
	for _, name := range files {
		for hops := 0; ; hops++ {
			if hops > 10 {
				t.Fatalf("%s: too many links", name)
			}
			dir, err := filepath.EvalSymlinks(filepath.Dir(name))
			must(t, err)
			if dir != filepath.Dir(name) { // a link among the directories
				for at := filepath.Dir(name); at != "/"; at = filepath.Dir(at) {
					if target, err := os.Readlink(at); err == nil {
						must(t, os.MkdirAll(root+filepath.Dir(at), 0o755))
						if err := os.Symlink(target, root+at); err != nil && !os.IsExist(err) {
							t.Fatal(err)
						}
					}
				}
				name = filepath.Join(dir, filepath.Base(name))
			}
			must(t, os.MkdirAll(root+dir, 0o755))
			target, err := os.Readlink(name)
			if err != nil {
				break
			}
			if err := os.Symlink(target, root+name); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(dir, target)
			}
			name = target
		}
		b, err := os.ReadFile(name)
		must(t, err)
		must(t, os.WriteFile(root+name, b, 0o755))
	}
}

// TestToolchainFromElsewhere: what a tree shows comes from the directory that is its Root. A name that only the host has
// does not exist, and a link in it leads nowhere else.
func TestToolchainFromElsewhere(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	files := programs(t, "cat")
	plant(t, root, files)
	const own = "/opt/of its own/file"
	must(t, os.MkdirAll(filepath.Dir(root+own), 0o755))
	must(t, os.WriteFile(root+own, []byte("from there\n"), 0o644))
	must(t, os.Symlink("../../../../../../opt", root+"/up"))
	must(t, os.Symlink(own, root+"/link"))
	must(t, os.Mkdir(root+"/whole", 0o755))
	must(t, os.WriteFile(root+"/whole/in it", []byte("in it\n"), 0o644))
	for name, kind := range map[string]func(Spec) Spec{"plain": func(s Spec) Spec { return s }, "confined": allKinds(t)["tree"]} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, kind(Spec{Root: root, Files: append(files, "/link", "/up/of its own/file"), Dirs: []string{"/whole"}}))
			o, out := runIn(t, tr, "/", "/usr/bin/cat", own, "/link", "/up/of its own/file", "/whole/in it")
			if want := strings.Repeat("from there\n", 3) + "in it\n"; o.Exit != 0 || out != want {
				t.Errorf("exit %d: %q, want %q", o.Exit, out, want)
			}
			if o, out := runIn(t, tr, "/", "/usr/bin/cat", "/etc/passwd"); o.Exit != 1 || !strings.Contains(out, "No such file") {
				t.Errorf("a file of the host: exit %d: %q", o.Exit, out)
			}
			if err := os.WriteFile(filepath.Join(root, "x"), []byte("x"), 0o644); err != nil { // the root itself stays writable for its owner
				t.Error(err)
			}
		})
	}
}

// TestRootReachesNothing: no name below a Root leads to the host, and none of those that a tree has anyway is replaced.
func TestRootReachesNothing(t *testing.T) {
	newTree(t, Spec{}) // or skip
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, dir := range []string{"/.host/etc", "/dir", "/dev", "/proc"} {
		must(t, os.MkdirAll(root+dir, 0o755))
	}
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, nil, 0o644))
	for name, target := range map[string]string{"/out": outside, "/host": "/.host/etc", "/loop": "/loop", "/up": "../../../../../../../../etc/passwd"} {
		must(t, os.Symlink(target, root+name))
	}
	must(t, os.WriteFile(root+"/.host/etc/file", nil, 0o644))
	must(t, os.WriteFile(root+"/dev/null", []byte("not null"), 0o644))
	must(t, os.WriteFile(root+"/proc/version", []byte("not proc"), 0o644))
	for _, name := range []string{"/.host/etc/file", "/host/file", "/out", "/loop", "/up", "/etc/passwd"} {
		tr, err := New(t.Context(), Spec{Root: root, Files: []string{name}})
		if err == nil {
			_ = tr.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "show "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat("/etc/file"); err == nil {
		t.Error("a file of the host was made")
	}
	tr := newTree(t, Spec{Root: root, Files: []string{"/dev/null", "/proc/version"}})
	if f, err := tr.Open("/proc/version"); err == nil {
		t.Errorf("a file of the toolchain in /proc: %d bytes", f.Size)
	}
	if _, err := New(t.Context(), Spec{Root: root, Bare: bareDir(t)}); err == nil || !strings.Contains(err.Error(), "needs namespaces") {
		t.Errorf("without namespaces: %v", err)
	}
	if _, err := New(t.Context(), Spec{Root: "relative"}); err == nil || !strings.Contains(err.Error(), "not an absolute name") {
		t.Errorf("a relative name: %v", err)
	}
}
