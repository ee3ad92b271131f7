package costs

import (
	"reflect"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs/journal"
)

const second = time.Second

// log makes a journal of compiles that end one after the other.
func log(files []journal.File, compiles ...journal.Compile) *journal.Log {
	for i := range compiles {
		compiles[i].Ended = time.Unix(int64(i), 0)
	}
	return &journal.Log{Files: files, Compiles: compiles}
}

func TestNothing(t *testing.T) {
	r := Of(new(journal.Log), nil)
	if r.Compiles != 0 || len(r.Units) != 0 || len(r.Headers) != 0 || r.Fit.Error >= 0 {
		t.Errorf("%+v", r)
	}
	// Nothing is known of what they read or take.
	r = Of(log(nil, journal.Compile{Source: "a.c", Place: journal.Here}, journal.Compile{Source: "b.c", OK: true, CPU: second}), nil)
	if r.Compiles != 2 || r.Here != 1 || r.OnHosts != 1 || r.Failed != 1 || r.Known != 0 || r.UnitsCPU != second || r.Units[0].Source != "b.c" {
		t.Errorf("%+v", r)
	}
}

// TestUnits: a unit takes what its compiles took on average that read what it reads now, and a hit does not blur what they read.
func TestUnits(t *testing.T) {
	files := []journal.File{{Name: "/w/a.c", Size: 10, Sum: 1}, {Name: "/w/x.h", Size: 100, Sum: 1}, {Name: "/w/y.h", Size: 1000, Sum: 1}, {Name: "/w/x.h", Size: 200, Sum: 2}}
	all, old, now := []uint32{0, 2, 3}, []uint32{0, 1}, []uint32{0, 3}
	a := journal.Compile{Source: "/w/a.c", Output: "/w/a.o", OK: true, Exact: true, Command: 1}
	with := func(reads []uint32, cpu time.Duration, change func(*journal.Compile)) journal.Compile {
		c := a
		c.Reads, c.CPU = reads, cpu
		if change != nil {
			change(&c)
		}
		return c
	}
	r := Of(log(files, with(old, 9*second, nil), with(now, 2*second, func(c *journal.Compile) { c.Memory = 5 << 20 }), with(now, 4*second, nil),
		with(all, 8*second, func(c *journal.Compile) { c.OK = false }),
		with(all, 2*second, func(c *journal.Compile) { c.Place, c.Exact = journal.Cached, false }),
		with(nil, 7*second, func(c *journal.Compile) { c.Place = journal.Here })), nil)
	want := Unit{Source: "/w/a.c", Output: "/w/a.o", Compiles: 6, CPU: 2 * second, Memory: 5 << 20, Files: 2, Text: 210, reads: now}
	if len(r.Units) != 1 || !reflect.DeepEqual(r.Units[0], want) {
		t.Errorf("got  %+v\nwant %+v", r.Units, want)
	}
	if len(r.Headers) != 1 || r.Headers[0].Name() != "/w/x.h" || r.Headers[0].Changes != 1 || r.Headers[0].Text != 200 {
		t.Errorf("%+v", r.Headers)
	}
	r = Of(log(files, with(now, 2*second, nil), with(now, 4*second, nil), with(now, 9*second, func(c *journal.Compile) { c.Place = journal.Cached })), nil)
	if r.Units[0].CPU != 3*second || r.Spent != 6*second || r.Cached != 1 || r.Cache.Saved != 9*second {
		t.Errorf("%+v", r)
	}
}

// TestHeadersTogether: what is always read together is one, named by the file that most likely includes the others.
func TestHeadersTogether(t *testing.T) {
	files := []journal.File{{Name: "/usr/include/c++/12/bits/regex.h", Size: 50}, {Name: "/usr/include/c++/12/regex", Size: 7}, {Name: "/w/own.h", Size: 5}, {Name: "/w/a.c", Size: 3}, {Name: "/w/b.c", Size: 3}}
	r := Of(log(files, journal.Compile{Source: "/w/a.c", OK: true, CPU: second, Reads: []uint32{0, 1, 2, 3}},
		journal.Compile{Source: "/w/b.c", OK: true, CPU: 2 * second, Reads: []uint32{2, 4}}), nil)
	if len(r.Headers) != 2 {
		t.Fatalf("%+v", r.Headers)
	}
	for _, h := range r.Headers {
		switch h.Name() {
		case "/usr/include/c++/12/regex":
			if len(h.Files) != 2 || h.Units != 1 || h.Text != 57 || h.Touch != second {
				t.Errorf("%+v", h)
			}
		case "/w/own.h":
			if len(h.Files) != 1 || h.Units != 2 || h.Text != 10 || h.Touch != 3*second {
				t.Errorf("%+v", h)
			}
		default:
			t.Errorf("%+v", h)
		}
	}
	list := r.Edited()
	if len(list) != 1 || list[0].Name() != "/w/own.h" {
		t.Errorf("%+v", list)
	}
}

func TestMisses(t *testing.T) {
	files := []journal.File{{Name: "a.c", Sum: 1}, {Name: "b.c", Sum: 1}, {Name: "x.h", Sum: 1}, {Name: "x.h", Sum: 2}, {Name: "a.c", Sum: 2}, {Name: "new.h"}}
	c := func(source string, command uint64, reads ...uint32) journal.Compile {
		return journal.Compile{Source: source, Command: command, OK: true, Asked: true, Exact: true, CPU: second, Reads: reads}
	}
	hit := c("a.c", 1, 3, 4)
	hit.Place = journal.Cached
	inexact := c("b.c", 1, 1, 3, 5) // that it did not read new.h is not known
	inexact.Exact = false
	r := Of(log(files, c("a.c", 1, 0, 2), c("b.c", 1, 1, 2), // first
		c("a.c", 1, 3, 4), c("b.c", 1, 1, 3), // both for x.h, although a.c has changed too
		c("b.c", 2, 1, 3),    // the command
		c("b.c", 2, 1, 3, 5), // new.h came
		c("b.c", 2, 1, 3, 5), // nothing
		hit, inexact), nil)
	want := Cache{Asked: 9, Hits: 1, Saved: second, Missed: []Miss{{CauseChanged, "x.h", 2, 2 * second}, {CauseCommand, "", 2, 2 * second}, {CauseFirst, "", 2, 2 * second},
		{CauseChanged, "new.h", 1, second}, {CauseLost, "", 1, second}}}
	if !reflect.DeepEqual(r.Cache, want) {
		t.Errorf("got  %+v\nwant %+v", r.Cache, want)
	}
}

// TestMissesOfSome: of compiles that do not count, only what they read is of interest.
func TestMissesOfSome(t *testing.T) {
	files := []journal.File{{Name: "a.c", Sum: 1}, {Name: "x.h", Sum: 1}, {Name: "x.h", Sum: 2}}
	c := func(build uint64, reads ...uint32) journal.Compile {
		return journal.Compile{Source: "a.c", Build: build, OK: true, Asked: true, Exact: true, CPU: second, Reads: reads}
	}
	r := Of(log(files, c(1, 0, 1), c(2, 0, 2), c(3, 0, 1)), func(c *journal.Compile) bool { return c.Build == 2 })
	if want := (Cache{Asked: 1, Missed: []Miss{{CauseChanged, "x.h", 1, second}}}); !reflect.DeepEqual(r.Cache, want) || r.Compiles != 1 || r.Spent != second || r.From != r.To {
		t.Errorf("got  %+v of %d\nwant %+v", r.Cache, r.Compiles, want)
	}
}

// TestOnceLeavesPredefined: what compilers read by themselves is in no precompiled header.
func TestOnceLeavesPredefined(t *testing.T) {
	files := []journal.File{{Name: "/usr/include/stdc-predef.h", Size: 1000}, {Name: "/w/a.h", Size: 1000}}
	unit := func(name string, reads ...uint32) journal.Compile {
		return journal.Compile{Source: name, OK: true, Exact: true, CPU: second, Reads: reads}
	}
	r := Of(log(files, unit("/w/a.c", 0, 1), unit("/w/b.c", 0, 1), unit("/w/c.c", 0)), nil)
	if once := r.Once(5); len(r.Headers) != 2 || len(once.Headers) != 1 || once.Headers[0].Name != "/w/a.h" {
		t.Errorf("%+v of %+v", once, r.Headers)
	}
}
