//go:build amd64 || arm64

package privatetree

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// withAnswers makes an answered tree that shows a shell, more programs and directories.
func withAnswers(t testing.TB, dirs []string, names ...string) *Tree {
	t.Helper()
	return newTree(t, Spec{Files: programs(t, append(names, "/bin/sh")...), Dirs: dirs, Confine: true, Bare: bareDir(t), Answered: true})
}

// TestAnsweredNames: names mean in an answered tree what they mean in one with namespaces.
func TestAnsweredNames(t *testing.T) {
	whole := bareDir(t)                                                    // shown
	must(t, os.Chmod(whole, 0o755))                                        //nolint:gosec // for other users
	must(t, os.WriteFile(whole+"/inside", []byte("of the host\n"), 0o644)) //nolint:gosec // for other users
	must(t, os.Symlink("../../work/a", whole+"/out"))
	must(t, os.Mkdir(whole+"/sub", 0o755)) //nolint:gosec // for other users
	hidden := bareDir(t)
	must(t, os.WriteFile(hidden+"/secret", []byte("secret\n"), 0o644)) //nolint:gosec // Landlock and the tree hide it
	long := "/" + strings.Repeat(strings.Repeat("n", 199)+"/", 20)     // 4,001 bytes
	trees := map[string]*Tree{
		"answered": withAnswers(t, []string{whole}, "cat", "readlink", "ls", "mkdir", "mv", "ln", "rm", "rmdir", "touch"),
		"tree":     newTree(t, Spec{Files: programs(t, "/bin/sh", "cat", "readlink", "ls", "mkdir", "mv", "ln", "rm", "rmdir", "touch"), Dirs: []string{whole}, Confine: true}),
	}
	said := map[string]map[string]string{}
	for kind, tr := range trees {
		must(t, tr.Write("/work/a", []byte("a\n"), when, false))
		must(t, tr.Write("/work/deep/er/b", []byte("b\n"), when, true))
		must(t, tr.Write(long+strings.Repeat("f", 90), []byte("far\n"), when, false))
		must(t, tr.Symlink("/work/deep", "/work/abs"))
		must(t, tr.Symlink("deep/er", "/work/rel"))
		must(t, tr.Symlink("loop2", "/work/loop1"))
		must(t, tr.Symlink("loop1", "/work/loop2"))
		must(t, tr.Symlink(whole+"/inside", "/work/shown"))
		must(t, tr.Symlink(hidden+"/secret", "/work/hidden"))
		must(t, tr.Symlink("../../../../../../..", "/work/top"))
		said[kind] = map[string]string{}
		for _, script := range []string{
			"pwd; read x <a; echo $x", "cat abs/er/b rel/b rel/../er/b", "cat /work/./deep//er/../../a", "cat ../../../../work/a top/work/a",
			"cat loop1", "cat shown; cat hidden", "cat " + hidden + "/secret", "ls " + hidden, "cat /etc/passwd", "cat " + whole + "/inside " + whole + "/sub/../inside",
			"cat " + whole + "/out", "cat " + whole + "/../../work/a", "cat top" + whole + "/sub/../../../work/a", "readlink abs rel top shown loop1 a",
			"readlink -f abs/er/../er/b shown", "echo >a x; cat a", "echo >new 1 && cat new && mv new newer && cat newer && rm newer && ls", "mkdir d && echo >d/f 2 && mv d e && cat e/f && rm e/f && rmdir e",
			"ln -s abs/er/b l && cat l && rm l", "ln a hard && cat hard && rm hard", "echo >" + whole + "/inside no", "echo >" + whole + "/no no", "rm -f " + whole + "/inside", "mkdir " + whole + "/d",
			"mv a " + whole + "/a", "ln " + whole + "/inside here", "cat a/", "cat a/b", "cat ''", "cat none/x", "test -x deep/er/b && echo runs; test -r a && echo reads", "deep/er/b",
			"cat " + long + strings.Repeat("f", 90), "cat " + long + strings.Repeat("g", 95), "cat /" + strings.Repeat("n", 256), "cat " + strings.Repeat("/", 4000) + "work/a", "cat " + strings.Repeat("/", 4096),
			"cat /proc/1/status /proc/self/environ", "echo >/dev/null && ls /dev", "ls / /tmp", "touch /tmp/x && ls /tmp && rm /tmp/x",
		} {
			o, out := runIn(t, tr, "/work", "/bin/sh", "-c", script)
			if o.Excess != sandbox.ExcessNone || o.Signal != 0 {
				t.Errorf("%s: %.80s: %+v", kind, script, o)
			}
			said[kind][script] = strings.ReplaceAll(out, "cannot stat", "cannot access")
			must(t, tr.Mkdirs("/work"))
		}
	}
	for script, want := range said["tree"] {
		got := said["answered"][script]
		switch {
		case strings.Contains(script, "/proc/"): // empty there
			want = "cat: /proc/1/status: No such file or directory\ncat: /proc/self/environ: No such file or directory\n"
		case strings.HasPrefix(script, "ls / "): // with the way to what differs
			continue
		}
		if got != want {
			t.Errorf("%.80s:\nanswered %.200q\ntree     %.200q", script, got, want)
		}
	}
	for kind, tr := range trees {
		if err := tr.Clean(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if b, err := os.ReadFile(whole + "/inside"); err != nil || string(b) != "of the host\n" {
		t.Errorf("changed: %q, %v", b, err)
	}
}

// TestUnansweredCommand: one that goes elsewhere is ended, and the outcome says why; a flood of calls keeps nobody from looking at it.
func TestUnansweredCommand(t *testing.T) {
	tr := withAnswers(t, nil)
	if o, out := runIn(t, tr, "/tmp", "/bin/sh", "-c", "cd . && cd ../tmp/ && cd -P /tmp && { cd /none || exit 7; }"); o.Exit != 7 || o.Excess != sandbox.ExcessNone {
		t.Errorf("nowhere else: %+v, %s", o, out)
	}
	if o, _ := runIn(t, tr, "/tmp", "/bin/sh", "-c", "cd / && exit 7"); o.Excess != sandbox.ExcessNames || o.Signal == 0 {
		t.Errorf("got %+v", o)
	}
	must(t, tr.Clean())
	flood := "while :; do [ -e /none ]; done & while :; do [ -e /none ]; x=$x$x${x:-0123456789abcdef}; done"
	if o := runLimited(t, tr, flood, sandbox.Limits{JobMemory: 64 << 20}); o.Excess != sandbox.ExcessMemory {
		t.Errorf("got %+v", o)
	}
	must(t, tr.Clean())
}

// TestAnsweredWritesAreBounded: what a command writes counts, though the tree is not searched each time.
func TestAnsweredWritesAreBounded(t *testing.T) {
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh", "cat"), Confine: true, Bare: bareDir(t), Answered: true, Size: 8 << 20})
	script := "i=0; while [ $i -lt 64 ]; do cat /dev/zero >/tmp/$i 2>&-; i=$((i+1)); done; exit 3"
	if o := runLimited(t, tr, script, sandbox.Limits{File: 1 << 20, JobMemory: 1 << 30}); o.Excess != sandbox.ExcessFile {
		t.Errorf("got %+v", o)
	}
}

// TestAnsweredDescriptors: names in directories that are open.
func TestAnsweredDescriptors(t *testing.T) {
	whole := bareDir(t)
	must(t, os.Chmod(whole, 0o755))                    //nolint:gosec // for other users
	must(t, os.WriteFile(whole+"/inside", nil, 0o644)) //nolint:gosec // for other users
	tr := withAnswers(t, []string{whole}, "rm")
	must(t, tr.Write("/work/d/e/f", nil, when, false))
	if o, out := runIn(t, tr, "/work", "/bin/sh", "-c", "rm -r d && [ ! -e d ] && echo gone"); out != "gone\n" || o.Exit != 0 { // by unlinkat
		t.Errorf("got %+v, %q", o, out)
	}
	if o, out := runIn(t, tr, "/work", "/bin/sh", "-c", "rm -rf "+whole); o.Exit == 0 || !strings.Contains(out, "Read-only file system") {
		t.Errorf("got %+v, %q", o, out)
	}
	if _, err := os.Stat(filepath.Join(whole, "inside")); err != nil {
		t.Error(err)
	}
}

// TestAnsweredWhileInterrupted: a signal to the process that answers, such as those of its runtime, makes no call return anything else. A
// file that is opened in vain as descriptor 0 would be an empty header.
func TestAnsweredWhileInterrupted(t *testing.T) {
	tr := withAnswers(t, nil)
	must(t, tr.Write("/work/f", []byte("ok\n"), when, false))
	ended := make(chan struct{})
	done := make(chan struct{})
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", tr.proc.Pid))
	must(t, err)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
				tid, _ := strconv.Atoi(filepath.Base(threads[i%len(threads)])) // the kernel writes numbers
				_ = unix.Tgkill(tr.proc.Pid, tid, unix.SIGURG)                 // which Go's runtime sends itself, and takes without effect
			}
		}
	}()
	o, out := runIn(t, tr, "/work", "/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do read x <f; [ \"$x\" = ok ] || { echo \"$i: $x\"; exit 7; }; i=$((i+1)); done")
	close(ended)
	<-done
	if o.Exit != 0 || o.Signal != 0 || out != "" {
		t.Errorf("got %+v, %q", o, out)
	}
}
