package attacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// slow is a source that takes g++ half a minute.
const slow = "const char token[] = \"%s\";\n" +
	"template <int N> constexpr int f() { int s = N; for (int i = 0; i < 200000; i++) s ^= i; return s; }\n" +
	"template <int N> struct t { static constexpr int v = f<N>() + t<N - 1>::v; };\n" +
	"template <> struct t<0> { static constexpr int v = 0; };\nint x = t<890>::v;\n"

// startTenants makes sure that another client has its jobs running, one of each form,
// and learns where their sources lie.
func (s *site) startTenants(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if len(s.tenants) > 0 && s.findTenant() {
		return nil
	}
	s.endTenants()
	for _, form := range []string{"tenant", "treetenant"} {
		text := []byte(fmt.Sprintf(slow, s.c.tokens[form]))
		j := &rawjob.Job{Toolchain: s.tcs["g++"].ID, Text: text, Sink: 1 << 20, Body: &job.Body{
			Argv0: "g++", Language: "c++-cpp-output", Name: form + ".cc", Cwd: "/src", Outputs: []unit.Output{{Name: "out.o"}},
		}}
		if form == "treetenant" {
			if !s.trees {
				continue
			}
			b := j.Body
			b.Language, b.Args, b.Files = "c++", []string{"-c", b.Name, "-o", "out.o"}, []unit.File{{Name: b.Name, Len: uint64(len(text))}}
		}
		c, err := rawjob.Dial(ctx, s.dev, s.addr, 1)
		if err != nil {
			return err
		}
		s.tenants = append(s.tenants, c)
		if _, err := c.Start(ctx, j); err != nil {
			return err
		}
	}
	for !s.findTenant() {
		select {
		case <-ctx.Done():
			return errors.New("its jobs do not run")
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// findTenant looks where the sources of running jobs lie: by the name that the daemon knows
// them by, and by way of the process that compiles them.
func (s *site) findTenant() bool {
	found := 0
	for pid, p := range processes() {
		if p.name != "cc1plus" {
			continue
		}
		words, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
		if err != nil {
			continue
		}
		for _, form := range []string{"tenant", "treetenant"} {
			if !strings.Contains(string(words), "\x00"+form+".cc\x00") && !strings.Contains(string(words), "/"+form+".cc\x00") {
				continue
			}
			through := filepath.Join("/proc", strconv.Itoa(pid), "root", cwd, form+".cc")
			if form == "tenant" {
				s.c.names["OTHER"] = through
				if direct := filepath.Join(cwd, form+".cc"); fileExists(s.root() + direct) {
					s.c.names["OTHER"] = direct
				}
			}
			s.c.names["OTHERTREE"] = through
			found++
		}
	}
	return found >= len(s.tenants) && found > 0
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// endTenants takes the other client's jobs away.
func (s *site) endTenants() {
	for _, c := range s.tenants {
		c.Close()
	}
	s.tenants = nil
}
