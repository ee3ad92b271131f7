// Package wireattacks attacks real daemons over loopback, with a raw client that has
// none of our checks in its way, and keeps the list of attacks (testdata/wire-attacks.toml)
// against the tests that make them, here and in process.
//
// What is wanted of each is the same: the offender gets a Terminate, or is
// disconnected, soon; an honest client on another connection goes on; no byte of any
// slot changes that was not granted; nothing remains; a metric counts it by cause.
package wireattacks

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// patience ends a wait for what does not happen.
const patience = 2 * time.Minute

// Addresses of this machine, one for each part.
const (
	honestAddr  = "127.0.0.1"
	offender    = "127.0.0.2"
	otherClient = "127.0.0.3"
)

// settings of the daemon that is attacked: small slots, as all of them are compared.
const settings = `buffers: {slot: 1MiB, sink: 1MiB, prefault: 64KiB, source: 4MiB, result: 4MiB, large: 16MiB}
`

// patient daemons leave a client alone that does not answer while its test looks
// elsewhere.
const patient = "limits: {silence: 10m}\n"

// scene is a daemon and its honest client.
type scene struct {
	*testing.T
	farm   *farm.Farm
	d      farm.Process
	honest *raw
	job    uint64 // number of its last job
	object []byte // what its jobs make
	rest   level  // what the daemon holds with the honest client alone
}

// level is what a process holds.
type level struct{ descriptors, qps, regions, halfOpen, goroutines int }

// newScene starts a daemon, and a client that does its jobs between the attacks.
func newScene(t *testing.T, more string) *scene {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a farm")
	}
	part.Skip(t)
	t.Parallel() // each has a daemon of its own
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	root := farmtest.Dir(t)
	if err := os.Mkdir(filepath.Join(root, "compilers"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(gcc, filepath.Join(root, "compilers", "gcc")); err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, farm: farmtest.New(t, root)}
	file := filepath.Join(root, "daemon.yaml")
	if err := os.WriteFile(file, []byte(settings+"toolchains: {dirs: ["+filepath.Join(root, "compilers")+"]}\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.d, err = s.farm.StartDaemon(t.Context(), "rdistccd", "--jobs", "2", "--config", file); err != nil {
		t.Fatal(err)
	}
	s.honest = connect(t, honestAddr, s.d.Addr).open()
	s.honest.want = 2 // more it need not be asked for, and may be elsewhere
	s.honest.hello("honest")
	s.compile()
	s.rest = s.settled()
	return s
}

// compile has the honest client, on its one connection, get a right object.
func (s *scene) compile() {
	s.Helper()
	s.honest.t = s.T
	s.extend()
	s.job++
	res, sink := s.honest.do(s.job, "int honest(int x) { return x + 1; }\n")
	object := file(res, sink)
	if s.object == nil {
		s.object = bytes.Clone(object)
	}
	if res.Status != job.StatusRan || res.Exit != 0 || len(object) == 0 || !bytes.Equal(object, s.object) {
		s.Errorf("the honest client's job: %+v", res)
	}
	delete(s.honest.sink, sinkSTag+uint32(s.job))
}

func (s *scene) extend() { _ = s.honest.c.SetDeadline(time.Now().Add(patience)) }

// eventually waits until wrong returns "": what is still wrong.
func (s *scene) eventually(what string, wrong func() string) {
	s.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		w := wrong()
		if w == "" {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("no %s after %v: %s", what, patience, w)
		}
		s.answerHeartbeats()
	}
}

// answerHeartbeats lets the honest client take what has come.
func (s *scene) answerHeartbeats() { s.hear(s.honest) }

// hear makes a client handle what has arrived.
func (s *scene) hear(r *raw) {
	s.Helper()
	for {
		_ = r.c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := r.r.Peek(2); err != nil {
			break
		}
		_ = r.c.SetDeadline(time.Now().Add(patience))
		if e, _ := r.frame(); e.end != nil || e.said {
			s.Fatalf("the connection of %v: %+v", r.c.LocalAddr(), e)
		}
	}
	_ = r.c.SetDeadline(time.Now().Add(patience))
}

// metrics are the daemon's series by name and labels.
func (s *scene) metrics() map[string]float64 {
	s.Helper()
	page, err := farm.Get(s.Context(), "http://"+s.d.HTTP+"/metrics")
	if err != nil {
		s.Fatal(err)
	}
	m := make(map[string]float64)
	for line := range strings.Lines(string(page)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			m[name] = v
		}
	}
	return m
}

// level reads what the daemon holds. Slots that are kept ready do not count: their
// number is bounded; nor do descriptors of the runtime.
func (s *scene) level() level {
	s.Helper()
	m := s.metrics()
	l := level{qps: int(m["iwarp_qps"]), regions: int(m["iwarp_memory_regions"]), halfOpen: int(m["iwarp_half_open"]), goroutines: int(m["go_goroutines"])}
	for _, to := range s.descriptors() {
		if !strings.HasPrefix(to, "anon_inode:[event") && !strings.HasPrefix(to, "/memfd:") {
			l.descriptors++
		}
	}
	return l
}

// descriptors are the daemon's, by their path below /proc.
func (s *scene) descriptors() map[string]string {
	s.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.d.PID())
	names, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrPermission) {
		s.Log("only root can look into the daemon: its slots and descriptors are not compared")
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	all := make(map[string]string)
	for _, n := range names {
		if to, err := os.Readlink(filepath.Join(dir, n.Name())); err == nil {
			all[filepath.Join(dir, n.Name())] = to
		}
	}
	return all
}

// settled waits for a level that stays.
func (s *scene) settled() (l level) {
	s.Helper()
	s.eventually("stable level", func() string {
		last := l
		if l = s.level(); l == last {
			return ""
		}
		time.Sleep(50 * time.Millisecond)
		return fmt.Sprintf("%+v", l)
	})
	return l
}

// clean wants the daemon to hold no more than with the honest client alone. A page that
// is being read has a goroutine or two.
func (s *scene) clean() {
	s.Helper()
	s.eventually("return to what the daemon held", func() string {
		now, most := s.level(), s.rest
		if now.descriptors > most.descriptors || now.qps > most.qps || now.regions > most.regions+spare || now.halfOpen > 0 || now.goroutines > most.goroutines+2 {
			return fmt.Sprintf("%+v, at rest %+v", now, most)
		}
		return ""
	})
}

// spare is how many credits an honest client gets when it is alone again.
const spare = 16

// slots is the content of all slots, by inode.
func (s *scene) slots() map[uint64][]byte {
	s.Helper()
	all := make(map[uint64][]byte)
	shown := s.descriptors()
	if shown == nil {
		return nil
	}
	for path, to := range shown {
		if !strings.HasPrefix(to, "/memfd:rdistccd-slot") {
			continue
		}
		var st syscall.Stat_t
		content, err := os.ReadFile(path)
		if err != nil || syscall.Stat(path, &st) != nil {
			continue // it is gone
		}
		all[st.Ino] = content
	}
	if len(all) == 0 {
		s.Fatal("the daemon has no slots")
	}
	return all
}

// unchanged wants all slots that are there still to be as they were.
func (s *scene) unchanged(before map[uint64][]byte) {
	s.Helper()
	if before == nil {
		return // they could not be looked at
	}
	met := 0
	for ino, now := range s.slots() {
		was, ok := before[ino]
		if !ok {
			continue // made since
		}
		met++
		if sha256.Sum256(was) == sha256.Sum256(now) {
			continue
		}
		for i := range now {
			if now[i] != was[i] {
				s.Errorf("a slot was changed from %d on: %02x was %02x", i, now[i], was[i])
				break
			}
		}
	}
	if met == 0 {
		s.Error("no slot is left that could be compared")
	}
}

// attacker is a connection that has been granted credits.
func (s *scene) attacker() *raw {
	s.Helper()
	return connect(s.T, offender, s.d.Addr).open().hello("offender")
}

// verdict is what an offender must be told, and what counts it.
type verdict struct {
	term   string // layer/type/code; "": the connection ends, with or without a word
	metric string // a series that goes up by one at least; "": that of the Terminate
}

// judged makes an attack on a connection that is open, and holds what comes of it
// against the verdict.
func (s *scene) judged(r *raw, v verdict, attack func(r *raw)) {
	s.Helper()
	series := v.metric
	if series == "" {
		series = terminates(v.term)
	}
	counted := s.metrics()[series]
	slots := s.slots()
	attack(r)
	e := r.until()
	got := ""
	if e.said {
		got = fmt.Sprintf("%d/%d/%02x", e.term[0]>>4, e.term[0]&0xf, e.term[1])
	}
	if v.term != "" && got != v.term {
		s.Errorf("the offender was told %q (%v), want %s", got, e.end, v.term)
	}
	r.closed()
	r.c.Close()
	s.unchanged(slots)
	s.eventually("count of "+series, func() string {
		if now := s.metrics()[series]; now <= counted {
			return fmt.Sprintf("%v, before the attack %v", now, counted)
		}
		return ""
	})
	s.clean()
	s.compile()
}

// terminates is the series of a Terminate.
func terminates(term string) string {
	var layer, typ, code int
	if _, err := fmt.Sscanf(term, "%d/%d/%x", &layer, &typ, &code); err != nil {
		return "" // it never goes up
	}
	names := [][]string{{"rdmap", "catastrophic", "protection", "operation"}, {"ddp", "catastrophic", "tagged", "untagged"}, {"llp", "mpa"}}[layer]
	return fmt.Sprintf(`iwarp_terminates_total{code="0x%02x",direction="sent",layer=%q,type=%q}`, code, names[0], names[1+typ])
}

// full reports whether the numbers of testdata/wire-attacks.toml are asked for, where a
// run has fewer as a rule: RDISTCC_WIREATTACKS=full.
func full() bool { return os.Getenv("RDISTCC_WIREATTACKS") == "full" }
