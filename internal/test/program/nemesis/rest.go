package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// level is what one process holds.
type level struct{ descriptors, qps, regions int }

// rest is what all processes hold when nothing is under way.
type rest struct {
	manager level
	daemon  level // the highest of any daemon
	trees   int   // processes that keep private trees
}

// level reads what a process holds.
func (s *site) level(ctx context.Context, pid int, page string) (level, error) {
	m, err := metrics(ctx, page)
	if err != nil {
		return level{}, err
	}
	fds, err := descriptors(pid)
	return level{fds, int(m["iwarp_qps"]), int(m["iwarp_memory_regions"])}, err
}

// rest reads what all processes hold now.
func (s *site) rest(ctx context.Context) (r rest, err error) {
	pids := s.managers()
	if len(pids) != 1 {
		return r, fmt.Errorf("%d managers run", len(pids))
	}
	if r.manager, err = s.level(ctx, pids[0], s.managerPage()); err != nil {
		return r, fmt.Errorf("manager: %w", err)
	}
	for i, h := range s.hosts {
		l, err := s.level(ctx, h.daemon(), s.farm.Daemons[i].HTTP)
		if err != nil {
			return r, fmt.Errorf("host %d: %w", i+1, err)
		}
		r.daemon = level{max(r.daemon.descriptors, l.descriptors), max(r.daemon.qps, l.qps), max(r.daemon.regions, l.regions)}
	}
	for _, p := range belonging(s.root) {
		if strings.HasPrefix(p.line, "rdistccd-tree") {
			r.trees++
		}
	}
	return r, nil
}

// over describes what a holds more than b.
func (a level) over(b level) string {
	if a.descriptors > b.descriptors || a.qps > b.qps || a.regions > b.regions {
		return fmt.Sprintf("%d descriptors, %d queue pairs, %d regions; at rest %d, %d, %d", a.descriptors, a.qps, a.regions, b.descriptors, b.qps, b.regions)
	}
	return ""
}

// mustBeZero lists the series that count what is under way.
var mustBeZero = []string{
	`rdistcc_cm_slots{state="leased"}`, `rdistcc_cm_waiting{for="credit"}`, `rdistcc_cm_waiting{for="local"}`,
	`rdistcc_cm_waiting{for="preprocess"}`, "rdistcc_cm_large_bytes",
	"rdistccd_jobs_running", "rdistccd_jobs_queued", "rdistccd_large_bytes",
}

// busy describes what is still under way or held beyond base; "" means at rest.
func (s *site) busy(ctx context.Context, base rest) string {
	var wrong []string
	pages := map[string]string{"manager": s.managerPage()}
	own := map[int]bool{}
	for i, h := range s.hosts {
		pages[fmt.Sprintf("host %d", i+1)] = s.farm.Daemons[i].HTTP
		own[h.daemon()] = true
	}
	for name, page := range pages {
		m, err := metrics(ctx, page)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
		}
		for _, series := range mustBeZero {
			if m[series] != 0 {
				wrong = append(wrong, fmt.Sprintf("%s: %s %v", name, series, m[series]))
			}
		}
	}
	now, err := s.rest(ctx)
	switch over := []string{now.manager.over(base.manager), now.daemon.over(base.daemon)}; {
	case err != nil:
		wrong = append(wrong, err.Error())
	case over[0] != "":
		wrong = append(wrong, "manager: "+over[0])
	case over[1] != "":
		wrong = append(wrong, "a daemon: "+over[1])
	case now.trees > base.trees:
		wrong = append(wrong, fmt.Sprintf("%d processes of trees, at rest %d", now.trees, base.trees))
	}
	guards := 0
	for _, p := range belonging(s.root) {
		switch {
		case own[p.pid], s.isManager(p), strings.HasPrefix(p.line, "rdistccd-tree"):
		case strings.HasPrefix(p.line, "rdistccd-guard "):
			guards++
		default:
			wrong = append(wrong, p.String())
		}
	}
	if guards > len(s.hosts) {
		wrong = append(wrong, fmt.Sprintf("%d guards of %d daemons", guards, len(s.hosts)))
	}
	for _, h := range s.hosts {
		wrong = append(wrong, files(h.area)...)
		if areas, _ := os.ReadDir(h.area); len(areas) > 1 {
			wrong = append(wrong, fmt.Sprintf("%d work areas in %s", len(areas), h.area))
		}
	}
	wrong = append(wrong, files(s.tmp)...)
	wrong = append(wrong, files(s.out)...)
	slices.Sort(wrong)
	return strings.Join(wrong, "; ")
}

// settle waits until everything is at rest and returns how long that took; anything still wrong after limit
// is an error.
func (s *site) settle(ctx context.Context, base rest, limit time.Duration) (time.Duration, error) {
	began := time.Now()
	for {
		what := s.busy(ctx, base)
		took := time.Since(began)
		switch {
		case what == "":
			return took, nil
		case took > limit, ctx.Err() != nil:
			return took, fmt.Errorf("not at rest after %v: %s", took.Round(time.Millisecond), what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
