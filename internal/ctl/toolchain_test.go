package ctl

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func TestToolchainForPeople(t *testing.T) {
	s := newShell(t)
	s.want(101, "", "rdistcc: toolchain needs one of list, pack and send, as in: rdistcc toolchain list\n", "toolchain")
	s.want(101, "", `no "lost"; there are list, pack and send`, "toolchain", "lost")
	s.want(101, "", "rdistcc: send needs a HOST and takes at most one COMPILER, as in: rdistcc toolchain send build7 gcc-12\n", "toolchain", "send")
	s.want(101, "", "rdistcc: pack needs a COMPILER, as in: rdistcc toolchain pack gcc-12\n", "toolchain", "pack")
	s.want(101, "", "rdistcc: no compiler nonesuch on PATH\n", "toolchain", "pack", "nonesuch")
	s.want(110, "", "not a compiler that can be identified", "toolchain", "pack", s.file("cc", "#!/bin/sh\n"))
	s.want(100, "", "no connection manager runs", "toolchain", "list")
	s.want(100, "", "no connection manager runs", "toolchain", "send", "a")
	var answer atomic.Pointer[[]report.Toolchain]
	say := func(hosts ...report.ToolchainHost) {
		answer.Store(&[]report.Toolchain{{ID: "01", Compiler: "gcc 12.2.0", Path: "/usr/bin/gcc", Bytes: 139e6, Hosts: hosts}})
	}
	answer.Store(&[]report.Toolchain{})
	var asked atomic.Int32
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if q.Args[0] == "send" && q.Args[1] == "x" {
			return &ipc.Reply{Code: 101, Data: []byte("no host x: the hosts are a:7632")}
		}
		list := answer.Load()
		if q.Args[0] == "toolchains" && asked.Add(1) > 3 && (*list)[0].Hosts[0].State == report.ToolchainSending {
			say(report.ToolchainHost{Host: "a:7632", State: report.ToolchainReceived})
		}
		return reply(t, list)
	})
	s.want(0, "no compiler has been used since the connection manager started\n", "", "toolchain", "list")
	say()
	s.want(0, "no hosts are configured", "", "toolchain", "list")
	say(report.ToolchainHost{Host: "a:7632", State: report.ToolchainInstalled}, report.ToolchainHost{Host: "b:7632", State: report.ToolchainSending, Done: 48e6, All: 139e6},
		report.ToolchainHost{Host: "c:7632", State: report.ToolchainLacking, Error: "none are accepted"}, report.ToolchainHost{Host: "d:7632", State: report.ToolchainWaiting},
		report.ToolchainHost{Host: "e:7632", State: report.ToolchainUnknown, Error: "no answer yet"}, report.ToolchainHost{Host: "f:7632", State: report.ToolchainLacking, Error: "reset", Again: true})
	out := strings.Join(strings.Fields(s.want(0, "", "", "toolchain", "list")), " ")
	for _, want := range []string{"gcc 12.2.0 /usr/bin/gcc 133MiB a:7632 installed b:7632 being sent: 48 of 139 MB", "c:7632 cannot be sent: none are accepted", "d:7632 going to be sent",
		"e:7632 not known: no answer yet", "f:7632 not there yet, and tried again soon: reset"} {
		if !strings.Contains(out, want) {
			t.Errorf("list lacks %q:\n%s", want, out)
		}
	}
	s.want(0, `"state": "lacking"`, "", "toolchain", "list", "--json")

	s.want(101, "", "rdistcc: no host x: the hosts are a:7632\n", "toolchain", "send", "x")
	say(report.ToolchainHost{Host: "a:7632", State: report.ToolchainInstalled})
	s.want(0, "a:7632 has gcc 12.2.0 installed\n", "", "toolchain", "send", "a")
	say(report.ToolchainHost{Host: "a:7632", State: report.ToolchainLacking, Error: "none are accepted"})
	s.want(110, "", "rdistcc: a:7632: gcc 12.2.0 cannot be sent: none are accepted\n", "toolchain", "send", "a")
	say(report.ToolchainHost{Host: "a:7632", State: report.ToolchainLacking, Error: "reset", Again: true})
	s.want(103, "", "rdistcc: a:7632: gcc 12.2.0 is not there yet: reset; the connection manager tries again\n", "toolchain", "send", "a")
	s.terminal = true
	asked.Store(0)
	say(report.ToolchainHost{Host: "a:7632", State: report.ToolchainSending, Done: 48e6, All: 139e6})
	s.want(0, "\r\x1b[Kgcc 12.2.0: being sent: 48 of 139 MB at a:7632", "", "toolchain", "send", "a")
	s.terminal = false
	asked.Store(0)
	say(report.ToolchainHost{Host: "a:7632", State: report.ToolchainSending, Done: 48e6, All: 139e6})
	if out := s.want(0, "", "", "toolchain", "send", "a"); out != "a:7632 has gcc 12.2.0 (133MiB)\n" {
		t.Errorf("into a pipe: %q", out)
	}
}

// TestPending: what is waited for ends with one line, whatever happens.
func TestPending(t *testing.T) {
	c := &ctl{}
	at := func(h report.ToolchainHost, late time.Duration) (waits bool, text string) {
		p, err := c.pending([]report.Toolchain{{Compiler: "gcc 12", Hosts: []report.ToolchainHost{h}}}, late)
		if err != nil {
			text = err.Error()
		}
		return p != nil, text
	}
	gone := report.ToolchainHost{Host: "a:1", State: report.ToolchainUnknown, Error: "connection refused", Down: true}
	if waits, text := at(gone, time.Second); !waits || text != "" {
		t.Errorf("at once: %v %s", waits, text)
	}
	if waits, text := at(gone, sendStale); waits || text != "a:1: connection refused; rdistcc doctor a:1 tells more" {
		t.Errorf("later: %v %s", waits, text)
	}
	gone.Down = false
	if waits, _ := at(gone, sendStale); !waits {
		t.Error("it is being connected")
	}
	if waits, text := at(gone, 2*sendReach); waits || text == "" {
		t.Error("it is never connected")
	}
	if _, err := c.pending([]report.Toolchain{{Compiler: "gcc 12"}}, 0); err == nil {
		t.Error("no host is left")
	}
}

// TestPack: the archive has what is listed, and is the same each time.
func TestPack(t *testing.T) {
	part.Skip(t)
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	s := newShell(t)
	s.env["PATH"] = filepath.Dir(gcc)
	s.want(0, "cc1", "", "toolchain", "pack", "gcc")
	var x packed
	file := filepath.Join(s.dir, "gcc.tar.zst")
	if err := json.Unmarshal([]byte(s.want(0, "", "", "toolchain", "pack", "gcc", "-o", file, "--json")), &x); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(file)
	if err != nil || int64(len(first)) != x.ArchiveBytes {
		t.Fatalf("%d of %d bytes, %v", len(first), x.ArchiveBytes, err)
	}
	s.want(0, "written to "+file, "", "toolchain", "pack", gcc, "--output", file)
	if again, err := os.ReadFile(file); err != nil || string(again) != string(first) {
		t.Errorf("another archive: %d and %d bytes, %v", len(first), len(again), err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := compress.Reader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	r := tar.NewReader(z)
	for i := -1; ; i++ {
		h, err := r.Next()
		if err == io.EOF {
			if i != len(x.Files) {
				t.Errorf("%d files of %d", i, len(x.Files))
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if i < 0 {
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			p, err := parcel.Parse(b)
			if err != nil || h.Name != parcel.DescriptionName || len(p.Entries) != len(x.Files) {
				t.Fatalf("%s: %v", h.Name, err)
			}
			continue
		}
		if want := x.Files[i]; "/"+h.Name != want.Name || h.Linkname != want.Link || uint64(h.Size) != want.Bytes || (h.Mode&0o111 != 0) != (want.Exec || want.Link != "") {
			t.Errorf("%+v is not %+v", h, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(s.dir, ".gcc*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	s.want(107, "", "no such file or directory", "toolchain", "pack", "gcc", "-o", filepath.Join(s.dir, "no", "x"))
}
