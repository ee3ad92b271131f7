package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestOncePerBuild: what concerns a build, and not one of its commands, is said once, by one of several commands at the same time too, in
// each build anew, and again after a while.
func TestOncePerBuild(t *testing.T) {
	for name, c := range map[string]struct{ env, say string }{
		"a setting":  {"RDISTCC_CACHE=maybe", "RDISTCC_CACHE=maybe is taken as on"},
		"no manager": {"RDISTCC_CACHE=on", "; compiled here"}, // there is no rdistcc-cm on this PATH
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("hello.c", hello)
			gcc, err := exec.LookPath("gcc")
			if err != nil {
				t.Fatal(err)
			}
			b.env = append(b.env, "PATH="+filepath.Dir(gcc)+":/bin", c.env)
			// The second line is of commands in groups of their own, as ninja's are.
			const three = `for i in 1 2 3; do "$0" "$1" -c hello.c -o $i.o & done; wait`
			build := func(words ...string) (said int) {
				t.Helper()
				o := b.run(append(words, "sh", "-c", three+`; set -m; `+three, rdistcc, gcc)...)
				if o.code != 0 {
					t.Errorf("%+v", o)
				}
				return strings.Count(o.stderr, c.say)
			}
			for _, named := range []string{"RDISTCC_BUILD=1", "RDISTCC_BUILD=2", "OTHER=1"} {
				if n := build("env", named); n != 1 {
					t.Errorf("%s: said %d times", named, n)
				}
			}
			if n := build("env", "RDISTCC_BUILD=2"); n != 0 {
				t.Errorf("the same build: said %d times more", n)
			}
			long := time.Now().Add(-2 * forgetTold)
			if err := os.Chtimes(filepath.Join(b.path("state"), ipc.ToldName), long, long); err != nil {
				t.Fatal(err)
			}
			if n := build("env", "RDISTCC_BUILD=2"); n != 1 {
				t.Errorf("after a while: said %d times", n)
			}
			if n := build("env", "RDISTCC_BUILD=2", "RDISTCC_VERBOSE=0"); n != 0 {
				t.Errorf("without words: said %d times", n)
			}
		})
	}
}
