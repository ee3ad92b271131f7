package toolchains

import (
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"strings"
	"testing"
)

// TestWaits: a command that may not run here waits until its host has been sent the compiler. If the host refuses it, the command fails at
// once, and says why.
func TestWaits(t *testing.T) {
	part.Skip(t)
	cc := compilers(t, "gcc", "clang")[0]
	for _, env := range []string{"RDISTCC_MODE=remote", "RDISTCC_FALLBACK=0"} {
		t.Run(env, func(t *testing.T) {
			s := prepare(t, bare)
			s.Vars = append(s.Vars, env)
			s.start()
			s.write("x.c", cSource)
			got := s.run(cc, "-O2", "-g", "-c", "x.c", "-o", "x.o")
			if got.status != 0 || got.where != "remote:"+s.Daemons[0].Addr || got.out != "" {
				t.Fatalf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
			}
			s.equal(cc, "-O2", "-g", "-c", "x.c", "-o", "x.o")
		})
	}
	t.Run("refused", func(t *testing.T) {
		s := prepare(t, "toolchains: {dirs: [/nowhere], accept: none}\n")
		s.Vars = append(s.Vars, "RDISTCC_MODE=remote")
		d, err := s.StartDaemonUnready(s.ctx, "host", "--jobs", "1")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.StartManager(s.ctx, "--hosts", d.Addr); err != nil {
			t.Fatal(err)
		}
		s.write("x.c", cSource)
		got := s.run(cc, "-O2", "-c", "x.c", "-o", "x.o")
		if got.status != 110 || strings.Count(got.out, "\n") != 1 || !strings.Contains(got.out, "cannot be sent there") || !strings.Contains(got.out, "toolchains.accept") {
			t.Errorf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
		}
	})
}
