package checkout

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// put makes a file with a text, and the directories that lead there.
func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRoot: the root is that of the innermost checkout or worktree, whichever tool has made it. What only looks like one does not count.
func TestRoot(t *testing.T) {
	in := t.TempDir()
	put(t, in+"/git/.git/HEAD", "ref: refs/heads/main\n")
	put(t, in+"/git/.git/worktrees/w/HEAD", "ref: refs/heads/w\n")
	put(t, in+"/git/.git/modules/m/HEAD", "ref: refs/heads/m\n")
	put(t, in+"/git/.git/modules/m/worktrees/mw/HEAD", "ref: refs/heads/mw\n")
	put(t, in+"/git/below/w/.git", "gitdir: "+in+"/git/.git/worktrees/w\n")
	put(t, in+"/git/m/.git", "gitdir: ../.git/modules/m\n")
	put(t, in+"/mw/.git", "gitdir: "+in+"/git/.git/modules/m/worktrees/mw\n")
	put(t, in+"/git/nowhere/.git", "gitdir: /nowhere/at/all\n")
	put(t, in+"/git/empty/.git/config", "")
	put(t, in+"/git/odd/.git", "something else")
	put(t, in+"/hg/.hg/store/00changelog.i", "")
	put(t, in+"/jj/.jj/repo", "../git/.jj/repo")
	for dir, want := range map[string]string{
		"/git":             "/git",
		"/git/src/lib":     "/git", // need not exist
		"/git/below/w/src": "/git/below/w",
		"/git/below":       "/git",
		"/git/m/src":       "/git",
		"/mw/src":          "/mw",
		"/git/nowhere":     "/git",
		"/git/empty/x":     "/git",
		"/git/odd":         "/git",
		"/hg/x":            "/hg",
		"/jj/x":            "/jj",
	} {
		if got := Root(in + dir); got != in+want {
			t.Errorf("%s: %q, want %q", dir, got, in+want)
		}
	}
	for _, dir := range []string{"/", "", "relative", "/proc"} {
		if got := Root(dir); got != "" {
			t.Errorf("%q: %q", dir, got)
		}
	}
	var r Roots
	for range 2 {
		if got := r.Of(in + "/git/src"); got != in+"/git" {
			t.Errorf("remembered: %q", got)
		}
	}
}

// TestRealWorktrees: what git makes is what is found.
func TestRealWorktrees(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		need.Skipf(t, need.Tools, "no git")
	}
	in := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", in + "/one"},
		{"-C", in + "/one", "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "--allow-empty", "-m", "first"},
		{"-C", in + "/one", "worktree", "add", "-q", in + "/one/inside/two"},
		{"-C", in + "/one", "worktree", "add", "-q", in + "/three"},
	} {
		if out, err := exec.Command(git, args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	for _, dir := range []string{"/one", "/one/inside/two", "/three"} {
		if got := Root(in + dir + "/src"); got != in+dir {
			t.Errorf("%s: %q", dir, got)
		}
	}
}
