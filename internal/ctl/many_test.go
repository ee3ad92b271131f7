package ctl

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

var (
	manyCompiles = flag.Int("many", 1_000, "compiles of each of the two builds of TestManyCompiles")
	manyDir      = flag.String("many-dir", "", "an empty directory for what TestManyCompiles writes, which is left there as XDG_STATE_HOME; empty: a temporary one")
)

// manyTree is a source tree that builds run in, and what is kept of them.
type manyTree struct {
	t       *testing.T
	store   *builds.Store
	journal string
	headers []journal.File
	units   [][]int // headers that each reads
	random  *rand.Rand
}

// odd is a name with any bytes.
const odd = "/w/\x01\x1b[31m\xff\u202e<img src=x onerror=document.title='owned'>\n.h"

// build writes what rdistcc build and the manager keep of a build of all units, with the number of the manager. A unit whose headers have
// changed is compiled, others come from the cache; first: all are compiled.
func (m *manyTree) build(number uint64, began time.Time, first bool, changed map[int]bool) {
	m.t.Helper()
	log := m.store.New(builds.Build{Command: []string{"make", "-j64"}, Dir: "/w", Began: began, Cores: 8})
	w := journal.NewWriter(m.journal)
	var jobs []report.JobRecord
	var end time.Time
	for u, list := range m.units {
		hit := !first
		for _, h := range list {
			hit = hit && !changed[h]
		}
		cpu := time.Duration(float64(time.Second) * (0.2 + 0.01*float64(len(list))*m.random.Float64()))
		from := began.Add(time.Duration(u) * 5 * time.Millisecond)
		r := report.JobRecord{ID: uint64(u), Began: from, Ended: from.Add(cpu), Source: fmt.Sprintf("/w/part%d/unit-%d.cc", u%50, u), Output: fmt.Sprintf("/w/out/part%d/unit-%d.o", u%50, u),
			Cwd: "/w", Host: fmt.Sprintf("10.0.0.%d:7632", u%40), Finished: true, Asked: true, Build: number, CPUUS: uint32(cpu.Microseconds()), HereUS: uint32(cpu.Microseconds()),
			CompileUS: uint32(cpu.Microseconds()), QueueUS: 1000, Memory: 200 << 20, Missed: "main.h has changed"}
		c := journal.Compile{Ended: r.Ended, Build: number, Command: 7, OK: true, Asked: true, Exact: true, Source: r.Source, Output: r.Output, Where: r.Host, CPU: cpu, Ran: cpu, Memory: r.Memory}
		if hit {
			r.Host, r.Cached, r.Missed, r.Ended = "", "manager", "", from.Add(time.Millisecond)
			c.Place, c.Where, c.Ended = journal.Cached, "manager", r.Ended
		}
		end = r.Ended
		if u == len(m.units)/2 { // the clock is set back for a moment
			r.Began, r.Ended = r.Began.Add(-40*365*24*time.Hour), r.Ended.Add(-40*365*24*time.Hour)
		}
		if jobs = append(jobs, r); len(jobs) == 500 {
			log.Add(jobs)
			jobs = jobs[:0]
		}
		id := journal.List{}
		binary.LittleEndian.PutUint64(id[:], uint64(u))
		for h := range changed {
			id[8] = byte(h)
		}
		w.Add(&c, id, func(yield func(*journal.File)) {
			yield(&journal.File{Name: r.Source, Size: 5000, Sum: uint64(u)})
			for _, h := range list {
				f := m.headers[h]
				if changed[h] {
					f.Sum++
				}
				yield(&f)
			}
		})
		if u%64 == 63 {
			if err := w.Flush(); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	log.Add(jobs)
	log.Finish(end.Add(time.Second))
	if err := w.Close(); err != nil || log.Err() != nil {
		m.t.Fatal(err, log.Err())
	}
}

// TestManyCompiles: of two builds of thousands of units (-many 50000: of 100,000 compiles), in a tree that is gone, with names of any bytes, a clock
// that jumped and a journal that is damaged, `rdistcc costs`, the page and the comparison say what is known, and the page stays small.
func TestManyCompiles(t *testing.T) {
	s, n := newShell(t), *manyCompiles
	state := filepath.Join(s.dir, "kept")
	if *manyDir != "" {
		state = *manyDir
	}
	s.env["XDG_STATE_HOME"] = state
	m := &manyTree{t: t, store: builds.Open(filepath.Join(state, "rdistcc", "builds")), journal: filepath.Join(state, "rdistcc", "costs"), random: rand.New(rand.NewPCG(7, 8))}
	// As in journal.TestSize and costs.TestLargeOpens: most units read 250 of the same headers, and 50 that lie together.
	headers := max(n/2, 2000)
	for h := range headers {
		m.headers = append(m.headers, journal.File{Name: fmt.Sprintf("/w/module%d/include/header-%d.h", h/1000, h), Size: uint64(500 + m.random.IntN(20_000)), Sum: m.random.Uint64()})
	}
	m.headers[3].Name = odd
	for range n {
		var list []int
		for h := range 270 {
			if m.random.IntN(100) < 93 {
				list = append(list, h)
			}
		}
		from := 270 + m.random.IntN(headers-270-200)
		for k := range 50 {
			list = append(list, from+4*k)
		}
		m.units = append(m.units, list)
	}
	began := time.Now().Add(-time.Hour)
	m.build(1, began, true, nil)
	changed := map[int]bool{headers / 2: true}
	m.build(2, began.Add(30*time.Minute), false, changed)
	misses := 0
	for _, list := range m.units {
		for _, h := range list {
			if changed[h] {
				misses++
			}
		}
	}

	var r costs.Report
	if err := json.Unmarshal([]byte(s.want(0, "", "", "costs", "--json")), &r); err != nil || r.Compiles != 2*n || len(r.Units) != n || r.Cached != n-misses {
		t.Fatalf("%v: %d compiles of %d units, %d from the cache", err, r.Compiles, len(r.Units), r.Cached)
	}
	text := s.want(0, "", "", "costs", "--top", "20")
	if want := fmt.Sprintf("%d compiles of %d units", 2*n, n); !strings.Contains(text, want) || strings.ContainsAny(text, "\x1b\x01") || len(text) > 20_000 {
		t.Errorf("no %q, or more than fits, in\n%.2000s", want, text)
	}
	text = s.want(0, "", "", "costs", "2")
	if want := fmt.Sprintf("header-%d.h has changed", headers/2); !strings.Contains(text, want) {
		t.Errorf("no %q in\n%.3000s", want, text)
	}
	text = s.want(0, "", "", "builds", "1", "2")
	if want := fmt.Sprintf("-%d", n-misses); !strings.Contains(text, want) || !strings.Contains(text, "main.h has changed") {
		t.Errorf("no %q in\n%.3000s", want, text)
	}
	file := filepath.Join(s.dir, "build.html")
	s.want(0, "shows build 1", "", "builds", "1", "--report", file)
	page, err := os.ReadFile(file)
	if err != nil || len(page) > 4<<20 || !strings.Contains(string(page), "<h2>Headers</h2>") || strings.Contains(string(page), "<img") {
		t.Errorf("%v: the page has %d bytes, or lacks headers, or has markup of a name", err, len(page))
	}
	t.Logf("%d compiles: the page has %d bytes", 2*n, len(page))
	if s.want(0, "unit-", "", "builds", "2", "--served"); *manyDir != "" {
		return
	}

	// One damaged byte takes a batch, and what refers to it.
	logs, err := filepath.Glob(filepath.Join(m.journal, "*.log"))
	if err != nil || len(logs) < 2 {
		t.Fatal(err, logs)
	}
	data, err := os.ReadFile(logs[1])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(logs[1], data, 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(0, fmt.Sprintf(" of %d units in the last 7 days", n), "bytes are damaged; what they said is missing", "costs")
	s.want(0, "shows build 2", "", "builds", "2", "--report", file)
}
