package ipc

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestStateDir: the state directory is the first place that this user can write to or create. RDISTCC_DIR is
// used without a check.
func TestStateDir(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, gone, home := filepath.Join(dir, "file"), filepath.Join(dir, "gone"), filepath.Join(dir, "home")
	blocked, closed := filepath.Join(dir, "blocked"), filepath.Join(dir, "closed")
	must(os.WriteFile(file, nil, 0o600))
	must(os.MkdirAll(filepath.Join(home, ".cache", "rdistcc"), 0o700))
	must(os.Mkdir(blocked, 0o700))
	must(os.WriteFile(filepath.Join(blocked, ".cache"), nil, 0o600))
	must(os.Mkdir(closed, 0o500))
	inTmp := "/tmp/rdistcc-" + strconv.Itoa(os.Geteuid())
	cases := []struct {
		own, runtime, home, want string
	}{
		{"", "", "", inTmp},
		{"", "", home, home + "/.cache/rdistcc"},
		{"", "", dir, dir + "/.cache/rdistcc"}, // it can be created
		{"", "", gone, inTmp},
		{"", "", file, inTmp},
		{"", "", blocked, inTmp},
		{"", dir, home, dir + "/rdistcc"},
		{"", gone, home, home + "/.cache/rdistcc"},
		{"", file, home, home + "/.cache/rdistcc"},
		{"", gone, gone, inTmp},
		{gone, dir, home, gone},
		{file, "", "", file},
	}
	if os.Geteuid() != 0 { // root can write there
		cases = append(cases, struct{ own, runtime, home, want string }{"", closed, closed, inTmp})
	}
	for _, c := range cases {
		env := map[string]string{"RDISTCC_DIR": c.own, "XDG_RUNTIME_DIR": c.runtime, "HOME": c.home}
		if got := StateDir(func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%v: %s, want %s", env, got, c.want)
		}
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("a home that was not there is made")
	}
}
