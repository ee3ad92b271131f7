package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
)

// file is one output of a hostile host's answer.
type file struct {
	index   uint8
	content string
}

// answers makes a host's answer of several files and words.
func answers(exit uint8, stderr string, files ...file) func(p *peer, m *job.Job) {
	return func(p *peer, m *job.Job) {
		r := &job.Result{ID: m.ID, Exit: exit, Stderr: job.Segment{Len: uint64(len(stderr))}}
		all := stderr
		for _, f := range files {
			r.Files = append(r.Files, job.File{Index: f.index, Segment: job.Segment{Off: uint64(len(all)), Len: uint64(len(f.content))}})
			all += f.content
		}
		p.write([]byte(all), m.Sink.STag, m.Sink.TO)
		p.send(r, m.Sink.STag)
	}
}

// TestAttackResultNotAnObject (result-not-an-object): what no compiler makes does not become a file of the
// build, whichever host sends it: the command gives what it gives without any host, in one clear line, and
// a good host beside is used.
func TestAttackResultNotAnObject(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.gcc()
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager("", "scheduler: {backoff: 5m, backoff-max: 5m}\n")
	s.file("hello.c", "#include <stddef.h>\nint hello;\n")
	if o := s.run([]string{"RDISTCC_HOSTS=" + d.Addr}, "gcc", "-c", "hello.c"); o.report != "remote:"+d.Addr {
		t.Fatalf("%+v", o)
	}
	bent := func(at int, to byte) string {
		b := []byte(objectHead + strings.Repeat("x", 1000))
		b[at] = to
		return string(b)
	}
	plain := []string{"gcc", "-c", "hello.c"}
	for name, q := range map[string]struct {
		args   []string
		answer func(p *peer, m *job.Job)
	}{
		"a script":                {plain, answers(0, "", file{0, "#!/bin/sh\ntouch /tmp/pwned\n"})},
		"a program":               {plain, answers(0, "", file{0, bent(16, 2)})},
		"a library":               {plain, answers(0, "", file{0, bent(16, 3)})},
		"another machine's":       {plain, answers(0, "", file{0, bent(18, 20)})},
		"32 bits":                 {plain, answers(0, "", file{0, bent(4, 1)})},
		"another byte order":      {plain, answers(0, "", file{0, bent(5, 2)})},
		"a broken head":           {plain, answers(0, "", file{0, objectHead[:10]})},
		"bitcode":                 {plain, answers(0, "", file{0, "BC\xc0\xde0123456789012345"})},
		"words":                   {plain, answers(0, "", file{0, strings.Repeat("no object ", 100)})},
		"64 bits where 32 are":    {[]string{"gcc", "-m16", "-c", "hello.c"}, answers(0, "", file{0, objectHead + "x"})},
		"an object for assembly":  {[]string{"gcc", "-S", "hello.c"}, answers(0, "", file{0, objectHead + "x"})},
		"rules with a recipe":     {[]string{"gcc", "-c", "-MD", "hello.c"}, answers(0, "", file{0, objectHead + "x"}, file{1, "hello.o: hello.c\n\ttouch /tmp/pwned\n"})},
		"rules with a variable":   {[]string{"gcc", "-c", "-MD", "hello.c"}, answers(0, "", file{0, objectHead + "x"}, file{1, "hello.o: hello.c $(shell touch /tmp/pwned)\n"})},
		"a makefile for rules":    {[]string{"gcc", "-c", "-MD", "hello.c"}, answers(0, "", file{0, objectHead + "x"}, file{1, "include /tmp/evil\n"})},
		"a killed compiler's lie": {plain, answers(1, "", file{0, "#!/bin/sh\n"})},
	} {
		output := "hello.o"
		if q.args[1] == "-S" {
			output = "hello.s"
		}
		host := liar{credits: 2, slot: 1 << 20, listed: 1, onJob: q.answer}.serve(t, id)
		o := s.run([]string{"RDISTCC_HOSTS=" + host}, q.args...)
		if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%s: %+v, want it compiled here", name, o)
		}
		s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(host)+" lost \\(its [a-z ]+ is [ -~]*\\); compiled here")
		s.sameObject(output, q.args...)
		if st, err := os.Stat(filepath.Join(s.work, output)); err != nil || st.Mode()&0o111 != 0 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
		host = liar{credits: 2, slot: 1 << 20, listed: 1, onJob: q.answer}.serve(t, id)
		o = s.run([]string{"RDISTCC_HOSTS=" + host + " " + d.Addr}, q.args...)
		if o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
			t.Errorf("%s beside a good host: %+v", name, o)
		}
		s.sameObject(output, q.args...)
	}
	// Content that an unusual source could yield: the compiler here decides, and no host is blamed.
	doubts := 0.0
	for name, q := range map[string]struct {
		args   []string
		what   string
		answer func(p *peer, m *job.Job)
	}{
		"a title":              {plain, "messages", answers(0, "\x1b]0;pwned\a", file{0, objectHead + "x"})},
		"colours unasked for":  {plain, "messages", answers(0, "\x1b[31mred\x1b[m\n", file{0, objectHead + "x"})},
		"a C1 control":         {plain, "messages", answers(0, "\u009b2J\n", file{0, objectHead + "x"})},
		"an overwritten line":  {plain, "messages", answers(0, "all is well\rno\n", file{0, objectHead + "x"})},
		"a failure, with bell": {plain, "messages", answers(1, "error: \a\n")},
		"a foreign target":     {[]string{"gcc", "-c", "-MD", "hello.c"}, "dependency-file", answers(0, "", file{0, objectHead + "x"}, file{1, "all: hello.c\n"})},
		"a foreign file":       {[]string{"gcc", "-c", "-MD", "hello.c"}, "dependency-file", answers(0, "", file{0, objectHead + "x"}, file{1, "hello.o: hello.c clean\n"})},
	} {
		host := liar{credits: 2, slot: 1 << 20, listed: 1, onJob: q.answer}.serve(t, id)
		if o := s.run([]string{"RDISTCC_HOSTS=" + host}, q.args...); o.status != 0 || o.stderr != "" || o.report != "local:doubt:"+q.what {
			t.Errorf("%s: %+v, want it compiled here", name, o)
		}
		s.sameObject("hello.o", q.args...)
		doubts++
	}
	s.eventually("account of compiles done twice", func() string {
		if n := s.metrics(s.Manager)[`rdistcc_cm_compiled_twice_total{reason="doubt"}`]; n != doubts {
			return fmt.Sprintf("%v, want %v", n, doubts)
		}
		return ""
	})
	s.eventually("end of all connections", s.busy)
}

// TestAttackResultLargerThanWindow (result-larger-than-window): a host that writes past
// the sink, or says that more is there, or offers more than was asked for, is lost; the
// object is the compiler's here.
func TestAttackResultLargerThanWindow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.gcc()
	s.manager("", "scheduler: {backoff: 5m, backoff-max: 5m}\n")
	s.file("hello.c", "int hello;\n")
	object := objectHead + strings.Repeat("x", 1000)
	for name, onJob := range map[string]func(p *peer, m *job.Job){
		"a write past the end": func(p *peer, m *job.Job) { p.write([]byte(object), m.Sink.STag, m.Sink.TO+m.Sink.Len-1) },
		"a write that wraps":   func(p *peer, m *job.Job) { p.write([]byte(object), m.Sink.STag, 1<<64-4) },
		"a write before it":    func(p *peer, m *job.Job) { p.write([]byte(object), m.Sink.STag, m.Sink.TO-1) },
		"one byte too long": answered(object, func(r *job.Result) {
			r.Files[0].Len = 32<<20 + 1
		}),
		"a length that wraps":          answered(object, func(r *job.Result) { r.Files[0].Off, r.Files[0].Len = 1<<63, 1<<63+5 }),
		"a length of all":              answered(object, func(r *job.Result) { r.Files[0].Len = 1<<64 - 1 }),
		"words beyond":                 answered(object, func(r *job.Result) { r.Stdout = job.Segment{Off: 32 << 20, Len: 1} }),
		"a frame longer than the sink": answered(object, func(r *job.Result) { r.Packed = 1 << 40 }),
		"a window of a terabyte":       answered(object, func(r *job.Result) { r.Window = job.Window{STag: 77, Len: 1 << 40} }),
	} {
		host := liar{credits: 2, slot: 1 << 20, listed: 1, onJob: onJob}.serve(t, id)
		o := s.run([]string{"RDISTCC_HOSTS=" + host}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%s: %+v, want it compiled here", name, o)
		}
		s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(host)+"[ -~]*; compiled here")
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
	}
	s.eventually("end of all connections", s.busy)
}
