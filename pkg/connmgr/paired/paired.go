// Package paired finds out how fast hosts are beside this machine, from compiles that ran in both places.
//
// The speeds that the scheduler learns do not tell that: it compares what compiles took with what they were expected to
// take, which suffices to choose between hosts that have had many. Few compiles run here.
package paired

import (
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// least is the shortest compile, in CPU time, that says something.
	least = 20 * time.Millisecond
	// enough is how many compiles must have run on a host and here before their ratio counts.
	enough = 3
	// remembered is how many such ratios of a host are remembered.
	remembered = 31
	// maxCompiles bounds how many compiles are remembered by place, and maxHosts the hosts.
	maxCompiles = 8192
	maxHosts    = 4096
)

var seed = maphash.MakeSeed()

// Compile names a compile: another one of the same name does about the same work.
type Compile struct{ Compiler, Cwd, Source, Output string }

// far is what a compile took on a host.
type far struct {
	host string
	cpu  time.Duration
}

// Table remembers what compiles took. The zero value is ready for use. It is safe for concurrent use.
type Table struct {
	mu     sync.Mutex
	far    map[uint64]far // the last one on a host, by Compile
	here   map[uint64]time.Duration
	ratios map[string][]float64 // of CPU time here to that on the host
}

func (t *Table) init() {
	if t.ratios == nil || len(t.ratios) > maxHosts {
		t.far, t.here, t.ratios = make(map[uint64]far), make(map[uint64]time.Duration), make(map[string][]float64)
	}
	if len(t.far) > maxCompiles {
		clear(t.far)
	}
	if len(t.here) > maxCompiles {
		clear(t.here)
	}
}

// Far records that a compile took that much CPU time on a host.
func (t *Table) Far(c Compile, host string, cpu time.Duration) {
	if cpu < least || c.Source == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.init()
	k := maphash.Comparable(seed, c)
	t.far[k] = far{host, cpu}
	if here, ok := t.here[k]; ok {
		t.add(host, here, cpu)
		delete(t.here, k) // a pair counts once
	}
}

// Here records that a compile took that much CPU time on this machine.
func (t *Table) Here(c Compile, cpu time.Duration) {
	if cpu < least || c.Source == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.init()
	k := maphash.Comparable(seed, c)
	t.here[k] = cpu
	if f, ok := t.far[k]; ok {
		t.add(f.host, cpu, f.cpu)
		delete(t.far, k)
	}
}

func (t *Table) add(host string, here, there time.Duration) {
	r := append(t.ratios[host], float64(here)/float64(there))
	t.ratios[host] = r[max(0, len(r)-remembered):]
}

// Ratio returns how many times the CPU time that a compile takes on a host it takes on this machine: the median of the
// compiles that ran in both places, or 1 while there are too few.
func (t *Table) Ratio(host string) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.ratios[host]
	if len(r) < enough {
		return 1
	}
	r = slices.Sorted(slices.Values(r))
	return math.Sqrt(r[(len(r)-1)/2] * r[len(r)/2])
}
