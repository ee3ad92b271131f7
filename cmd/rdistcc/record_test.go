package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// traced is the contract of RDISTCC_TRACE.
type traced struct {
	ID, Compiler, Source, Output, Where, Host, Reason, Form, Inputs string

	Files     int
	Cache     string
	SentFiles int   `json:"sent_files"`
	BytesSent int64 `json:"bytes_sent"`
	Exit      *int
	Start     float64
	Attempts  int
	Twice     bool
	Bytes     struct{ Source, Out, In *int64 }
	MS        map[string]float64
}

func (b *bench) trace() (all []traced) {
	b.t.Helper()
	for line := range strings.Lines(b.read("trace")) {
		var one traced
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&one); err != nil {
			b.t.Errorf("%v in %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

func TestTrace(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.env = append(b.env, "RDISTCC_TRACE="+b.path("trace"))
	b.write("hello.c", hello)
	odd := "a \"b\"\\\n\x01\x7fé\xff.c"
	b.write(odd, hello)
	b.write("bad.c", "error\n")
	b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "")
	b.wants(b.run(rdistcc, "gcc", "-c", odd, "-o", "odd.o"), 0, "")
	b.wants(b.run(rdistcc, "gcc", "-c", "bad.c"), 1, "error")
	all := b.trace()
	if len(all) != 3 {
		t.Fatalf("%d records, want 3", len(all))
	}
	r := all[0]
	if r.Inputs != "text" || r.BytesSent != *r.Bytes.Out {
		t.Errorf("remote: inputs %q, %d bytes sent", r.Inputs, r.BytesSent)
	}
	if r.ID == "" || r.ID == all[1].ID || !strings.HasPrefix(r.Compiler, "/") || r.Source != "hello.c" || r.Output != "hello.o" ||
		r.Where != "remote" || r.Host != "farm:7632" || r.Reason != "" || r.Twice || r.Exit == nil || *r.Exit != 0 || r.Attempts != 1 {
		t.Errorf("remote: %+v", r)
	}
	if *r.Bytes.Source == 0 || *r.Bytes.Out == 0 || *r.Bytes.In == 0 || r.Start < 1e12 {
		t.Errorf("remote: bytes %d, %d, %d, start %f", *r.Bytes.Source, *r.Bytes.Out, *r.Bytes.In, r.Start)
	}
	for _, phase := range []string{"lease", "preprocess", "submit", "credit", "write", "queue", "compile", "return", "place", "local", "total"} {
		if _, ok := r.MS[phase]; !ok {
			t.Errorf("no time of %s", phase)
		}
	}
	if r.MS["preprocess"] <= 0 || r.MS["total"] < r.MS["preprocess"] || r.MS["compile"] != 1 {
		t.Errorf("times: %v", r.MS)
	}
	if want := strings.ToValidUTF8(odd, "\ufffd"); all[1].Source != want {
		t.Errorf("source %q, want %q", all[1].Source, want)
	}
	if r := all[2]; r.Where != "local" || r.Reason != "diagnostics" || !r.Twice || *r.Exit != 1 || r.MS["local"] <= 0 {
		t.Errorf("local: %+v", r)
	}
}

// TestRecordsThatCannotBeWritten cost a line each, and nothing else.
func TestRecordsThatCannotBeWritten(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	for _, name := range []string{"REPORT", "TRACE", "LOG"} {
		cmd := b.cmd(rdistcc, "gcc", "-c", "hello.c")
		cmd.Env = append(cmd.Env, "RDISTCC_"+name+"="+b.path("no/such/file"), "RDISTCC_VERBOSE=2")
		o := b.finish(cmd)
		b.wants(o, 0, "rdistcc: RDISTCC_"+name+"="+b.path("no/such/file")+": no such file or directory")
		if n := strings.Count(o.stderr, "\n"); n > 2 {
			t.Errorf("%s: %d lines: %s", name, n, o.stderr)
		}
	}
	if _, err := os.Stat(b.path("hello.o")); err != nil {
		t.Error(err)
	}
}

func TestWhereLinesGo(t *testing.T) {
	b := newBench(t)
	b.write("hello.c", hello)
	b.env = append(b.env, "PATH=/nowhere")
	gcc := "/usr/bin/gcc"
	if _, err := os.Stat(gcc); err != nil {
		t.Skip("no " + gcc)
	}
	b.env = append(b.env, "PATH=/usr/bin:/bin")
	want := "; compiled here\n"
	b.wants(b.run(rdistcc, gcc, "-c", "hello.c"), 0, want)

	cmd := b.cmd(rdistcc, gcc, "-c", "hello.c")
	cmd.Env = append(cmd.Env, "RDISTCC_BUILD=2", "RDISTCC_LOG="+b.path("log"))
	b.wants(b.finish(cmd), 0, "")
	if log := b.read("log"); !strings.HasSuffix(log, want) {
		t.Errorf("log: %q", log)
	}

	f, err := os.Create(b.path("uncached"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd = b.cmd(rdistcc, gcc, "-c", "hello.c")
	cmd.Env = append(cmd.Env, "RDISTCC_BUILD=3", "UNCACHED_ERR_FD=3")
	cmd.ExtraFiles = []*os.File{f}
	b.wants(b.finish(cmd), 0, "")
	if log := b.read("uncached"); !strings.HasSuffix(log, want) {
		t.Errorf("UNCACHED_ERR_FD: %q", log)
	}
	cmd = b.cmd(rdistcc, gcc, "-c", "hello.c")
	cmd.Env = append(cmd.Env, "RDISTCC_BUILD=4", "UNCACHED_ERR_FD=33")
	b.wants(b.finish(cmd), 0, want)
}
