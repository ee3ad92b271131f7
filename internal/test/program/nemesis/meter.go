package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Series about what happens to stores.
const (
	storeBytes = "rdistccd_store_bytes"
	evictions  = "rdistccd_store_evictions_total"
	lacks      = "rdistccd_store_lacks_total"
	sentAgain  = "rdistcc_cm_input_lacks_total"
)

// meter adds up counters of processes that come and go. It reads them now and then, so it misses the last
// moments of processes that are killed.
type meter struct {
	s    *site
	stop context.CancelFunc
	done sync.WaitGroup
	last map[string]float64 // by page and series
	sum  map[string]float64 // by series
	jobs int                // jobs that lacked something when it began
}

const meterEvery = 500 * time.Millisecond

// startMeter counts from now on, until end.
func (s *site) startMeter(ctx context.Context) *meter {
	ctx, stop := context.WithCancel(ctx)
	m := &meter{s: s, stop: stop, last: make(map[string]float64), sum: make(map[string]float64), jobs: s.lacking()}
	m.look(ctx)
	clear(m.sum)
	m.done.Go(func() {
		t := time.NewTicker(meterEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				m.look(ctx)
			}
		}
	})
	return m
}

func (m *meter) look(ctx context.Context) {
	pages := []string{m.s.managerPage()}
	for i := range m.s.hosts {
		pages = append(pages, m.s.page(i))
	}
	for _, page := range pages {
		now, err := metrics(ctx, page)
		if err != nil {
			continue // it is down, or just being stopped
		}
		for _, series := range []string{evictions, lacks, sentAgain} {
			more := now[series] - m.last[page+series]
			if more < 0 { // it is another process
				more = now[series]
			}
			m.sum[series] += more
			m.last[page+series] = now[series]
		}
	}
}

// effects sums up what happened to stores.
type effects struct {
	struck                      bool // a store was struck at all
	evictions, lacks, sentAgain float64
	lacking                     int   // jobs refused because their host lacked what they named
	spoilt, met                 int64 // spoilt files, and those of them that a daemon has noticed
}

// end reads the counters a last time.
func (m *meter) end(ctx context.Context) effects {
	m.stop()
	m.done.Wait()
	m.look(ctx)
	http.DefaultClient.CloseIdleConnections() // they would make daemons hold more than they did at rest
	return effects{evictions: m.sum[evictions], lacks: m.sum[lacks], sentAgain: m.sum[sentAgain], lacking: m.s.lacking() - m.jobs}
}

func (e *effects) add(o effects) {
	e.struck = e.struck || o.struck
	e.evictions, e.lacks, e.sentAgain = e.evictions+o.evictions, e.lacks+o.lacks, e.sentAgain+o.sentAgain
	e.lacking, e.spoilt, e.met = e.lacking+o.lacking, e.spoilt+o.spoilt, e.met+o.met
}

// idle returns what should have happened and did not: the run then proves nothing about it.
func (e *effects) idle() (all []string) {
	if !e.struck {
		return nil
	}
	for _, x := range []struct {
		none bool
		what string
	}{
		{e.evictions == 0, "no content was dropped to make room"},
		{e.lacks == 0 || e.lacking == 0 || e.sentAgain == 0, "no host lacked what a job named"},
		{e.spoilt > 0 && e.met == 0, "no daemon met a file that was spoilt"},
	} {
		if x.none {
			all = append(all, fmt.Sprintf("stores were struck without an effect: %s", x.what))
		}
	}
	return all
}

// lacking returns how many jobs hosts have refused because they lacked what these named, according to the
// managers' log, which outlives the managers.
func (s *site) lacking() int {
	text, _ := os.ReadFile(filepath.Join(s.farm.Dir, "cm.log")) // a missing log shows at once
	return bytes.Count(text, []byte(" refused the job (lacks)"))
}

// page returns the address of a daemon's metrics.
func (s *site) page(host int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.farm.Daemons[host].HTTP
}

// series reads one of a daemon's series.
func (s *site) series(ctx context.Context, h *host, name string) (float64, error) {
	m, err := metrics(ctx, s.page(h.index))
	return m[name], err
}
