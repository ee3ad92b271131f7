package connmgr

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// auditFarm starts a simulated manager that audits every job, and hosts, the first of which changes its
// answers with wrong.
func auditFarm(t *testing.T, n int, log *strings.Builder, wrong func(a *daemontest.Answer)) (s *simulated, hosts string, all []*daemontest.Daemon) {
	t.Helper()
	s = newSimulated(t, func(o *Options) {
		o.Audit = 1
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	for i := range n {
		d := daemontest.Start(t, s.far, fmt.Sprintf("10.0.0.%d:7632", i+1), func(d *daemontest.Daemon) {
			d.Tree = true
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				a := timed(j)
				a.Err = []byte("a warning")
				if i == 0 && wrong != nil {
					wrong(a)
				}
				c.Finish(j, a)
			}
		})
		hosts += d.Addr + " "
		all = append(all, d)
	}
	s.m.farm.Want(s.m.lists.Of(hosts).Sched, nil)
	synctest.Wait()
	return s, hosts, all
}

// audits runs n jobs, each with its audit, and returns the counts by outcome.
func (s *simulated) audits(hosts string, n int) map[string]int {
	s.t.Helper()
	for range n {
		f := leaseOf(hosts)
		f.NeedTree = true
		if _, no := s.run(context.Background(), f, "int x;"); no != nil {
			s.t.Fatalf("answer %+v", no)
		}
		synctest.Wait()
		time.Sleep(2 * auditPatience)
		synctest.Wait()
	}
	count := make(map[string]int)
	for _, r := range report.AuditWords {
		if v := counter(s.t, s.m, "rdistcc_cm_audits_total", r); v > 0 {
			count[r] = int(v)
		}
	}
	if st := sinks(s.m); st.Total != st.Free || s.m.Status().Slots.Leased != 0 {
		s.t.Errorf("sinks %+v, %d sources leased after the audits, want none in use", st, s.m.Status().Slots.Leased)
	}
	return count
}

func (s *simulated) quarantined(addr string) bool {
	j := scheduler.Job{Hosts: []scheduler.Host{{Addr: addr}}, Toolchain: daemontest.Toolchain, Tried: map[string]bool{}}
	g, err := s.m.farm.Early(s.t.Context(), farm.NewRequest(s.m.ids.Add(1), j), func() {})
	if err != nil {
		s.t.Error(err)
	}
	return g.Decision.Reason == reason.Quarantine
}

// TestAuditFindsTheOddOne: a host whose object, message or status differs from those of two others gets no
// more jobs, and the log says so in one line.
func TestAuditFindsTheOddOne(t *testing.T) {
	for what, wrong := range map[string]func(a *daemontest.Answer){
		"x.o":         func(a *daemontest.Answer) { a.Objects[0][3] ^= 0x10 },
		"messages":    func(a *daemontest.Answer) { a.Err = nil },
		"output":      func(a *daemontest.Answer) { a.Out = []byte("?") },
		"exit status": func(a *daemontest.Answer) { a.Exit = 1 },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				s, hosts, all := auditFarm(t, 3, &log, wrong)
				count := s.audits(hosts, 10)
				if count[report.AuditDiffers] != 1 || count[report.AuditSame] != 9 {
					t.Errorf("audits %v, want one that differs and then none", count)
				}
				for i, d := range all {
					if got := s.quarantined(d.Addr); got != (i == 0) {
						t.Errorf("%s in quarantine: %v", d.Addr, got)
					}
				}
				line := "host in quarantine: its " + what + " of x.c is not that of 10.0.0."
				if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), line) {
					t.Errorf("log\n%swant one line with %q", log.String(), line)
				}
				if _, err := s.m.farm.Drain(all[0].Addr, false); err != nil {
					t.Error(err)
				}
				if s.quarantined(all[0].Addr) {
					t.Error("still in quarantine after undrain")
				}
			})
		})
	}
}

// TestAuditBlamesNobody: no host is blamed for results that no host reproduces, or that differ between two
// hosts without a third to decide.
func TestAuditBlamesNobody(t *testing.T) {
	for name, c := range map[string]struct {
		hosts int
		wrong func(a *daemontest.Answer)
		all   bool // all hosts are wrong
		want  string
	}{
		"equal":            {3, nil, false, report.AuditSame},
		"alone":            {1, nil, false, ""},
		"two hosts differ": {2, func(a *daemontest.Answer) { a.Objects[0][3] ^= 0x10 }, false, report.AuditOpen},
		"not reproducible": {4, func(a *daemontest.Answer) { a.Objects[0] = fmt.Append(nil, serial.Add(1)) }, true, report.AuditUnsound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				s, hosts, all := auditFarm(t, c.hosts, &log, c.wrong)
				if c.all {
					for _, d := range all {
						d.OnJob = all[0].OnJob
					}
				}
				count := s.audits(hosts, 5)
				if c.want != "" && count[c.want] != 5 || c.want == "" && len(count) != 0 {
					t.Errorf("audits %v, want 5 %q", count, c.want)
				}
				for _, d := range all {
					if s.quarantined(d.Addr) {
						t.Errorf("%s is in quarantine", d.Addr)
					}
				}
			})
		})
	}
}

// TestAuditOfWhatDependsOnTheTime: no host is blamed for a compile that writes the second of its time, even if those of an audit fall into
// few of them, nor for one whose result depends on chance.
func TestAuditOfWhatDependsOnTheTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	var last time.Time
	for name, c := range map[string]struct {
		wrong func(a *daemontest.Answer)
		jobs  int
	}{
		"second": {func(a *daemontest.Answer) {
			// The first compile of an audit ends just before a second does, and others follow at once.
			mu.Lock()
			now := time.Now()
			first := now.Sub(last) > time.Minute
			last = now
			mu.Unlock()
			if first {
				time.Sleep(now.Truncate(time.Second).Add(999 * time.Millisecond).Sub(now))
			} else {
				time.Sleep(2 * time.Millisecond)
			}
			a.Objects[0] = fmt.Append(nil, time.Now().Unix())
		}, 5},
		"chance": {func(a *daemontest.Answer) {
			mu.Lock()
			defer mu.Unlock()
			a.Objects[0] = fmt.Append(nil, random.IntN(2))
		}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				last = time.Time{}
				s, hosts, all := auditFarm(t, 3, &log, c.wrong)
				for _, d := range all {
					d.OnJob = all[0].OnJob
				}
				if count := s.audits(hosts, c.jobs); count[report.AuditUnsound] == 0 || count[report.AuditDiffers] != 0 {
					t.Errorf("audits %v, want some that are not reproducible and none that differ\n%s", count, log.String())
				}
				for _, d := range all {
					if s.quarantined(d.Addr) {
						t.Errorf("%s is in quarantine\n%s", d.Addr, log.String())
					}
				}
			})
		})
	}
}

// TestStrikes: a host that does not repeat what it gives is blamed with the third source, and not for one source again and again.
func TestStrikes(t *testing.T) {
	var s strikes
	for i, c := range []struct {
		host, source string
		want         bool
	}{
		{"a", "x.c", false}, {"a", "x.c", false}, {"a", "x.c", false}, {"b", "y.c", false}, {"a", "y.c", false}, {"b", "z.c", false},
		{"a", "z.c", true}, {"a", "x.c", false}, {"b", "x.c", true},
	} {
		if got := s.add(c.host, c.source); got != c.want {
			t.Errorf("%d: %s of %s: %v, want %v", i, c.source, c.host, got, c.want)
		}
	}
}

// TestAuditWaitsForNoHost: an audit does not keep a slot to wait for hosts that were lost or never came up,
// even if the job itself would have waited for one.
func TestAuditWaitsForNoHost(t *testing.T) {
	for name, forbid := range map[string]func(f *ipc.Lease){
		"may run here":     func(*ipc.Lease) {},
		"may not run here": func(f *ipc.Lease) { f.Fallback = ipc.FallbackForbidden },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				s, hosts, all := auditFarm(t, 2, &log, nil)
				f := leaseOf(hosts + "10.0.0.9:7632")
				f.NeedTree = true
				forbid(f)
				all[1].Stop()
				for i := range 3 {
					time.Sleep(10 * time.Minute)
					if _, no := s.run(context.Background(), f, "int x;"); no != nil {
						t.Fatalf("answer %+v", no)
					}
					synctest.Wait()
					if void := counter(t, s.m, "rdistcc_cm_audits_total", report.AuditVoid); int(void) != i+1 || s.m.auditing.Load() != 0 {
						t.Errorf("after the answer %v audits have ended and %d go on, want %d and none", void, s.m.auditing.Load(), i+1)
					}
				}
			})
		})
	}
}

var serial atomic.Uint64
