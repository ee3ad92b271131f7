package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// TestCompileOnTheWire records real compiles by the real programs between manager and host: what went over
// the wire decodes in Wireshark, each CRC is good and nothing malformed, and a warm compile takes no
// connection and one round trip: one job out, one result back. covers INT-07.
func TestCompileOnTheWire(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir := farmtest.Dir(t)
	f := farmtest.New(t, dir)
	// Without heartbeats: a compile that follows one before its echo has come does
	// not count as a round trip of its own.
	quiet := filepath.Join(dir, "quiet.yaml")
	if err := os.WriteFile(quiet, []byte("limits: {heartbeat: 1h, silence: 4h}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := f.StartDaemon(t.Context(), "rdistccd-1", "--jobs", "2", "--config", quiet)
	if err != nil {
		t.Fatal(err)
	}
	capture := filepath.Join(dir, "compile.pcap")
	pcap, err := os.Create(capture)
	if err != nil {
		t.Fatal(err)
	}
	defer pcap.Close()
	proxy, err := iwarptest.NewProxy(d.Addr, iwarptest.NewPcapWriter(pcap))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	if err := f.StartManager(t.Context(), "--hosts", proxy.Addr(), "--config", quiet); err != nil {
		t.Fatal(err)
	}

	sources := map[string]string{
		"empty.c": "",
		"hello.c": "#include <stdio.h>\nint main(void) { return printf(\"hello\\n\") < 0; }\n",
		"big.cc":  "#include <iostream>\nint main() { std::cout << 3; }\nchar big[300000] = {1};\n",
	}
	compile := func(source string) {
		t.Helper()
		compiler := "gcc"
		if strings.HasSuffix(source, ".cc") {
			compiler = "g++"
		}
		cmd := exec.CommandContext(t.Context(), f.Wrapper, compiler, "-O1", "-c", source, "-o", "remote.o")
		cmd.Dir, cmd.Env = dir, append(f.Env(), "RDISTCC_MODE=remote")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%s: %v: %s", source, err, out)
		}
		local := exec.CommandContext(t.Context(), compiler, "-O1", "-c", source, "-o", "local.o")
		local.Dir = dir
		if out, err := local.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", source, err, out)
		}
		got, err := os.ReadFile(filepath.Join(dir, "remote.o"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, "local.o"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the object differs from the local compiler's", source)
		}
	}
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		compile(name)
	}

	const warm = 5
	before := proxy.Counts()
	for range warm {
		compile("hello.c")
	}
	after := proxy.Counts()
	if n := after.Connections - before.Connections; n != 0 {
		t.Errorf("%d warm compiles opened %d connections", warm, n)
	}
	// An unasked message, say a grant and its echo, may come in between.
	if n := after.Turns - before.Turns; n < warm || n > warm+1 {
		t.Errorf("%d warm compiles took %d round trips", warm, n)
	}

	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile(capture)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := iwarptest.ReadPcap(recorded)
	if err != nil {
		t.Fatal(err)
	}
	fpdus := 0
	invalidates := map[bool]int{}
	for _, s := range streams {
		c, err := s.Conversation()
		if err != nil {
			t.Fatal(err)
		}
		if !c.CRC {
			t.Error("CRCs are off")
		}
		for _, fr := range c.Frames {
			if fr.Kind != "fpdu" {
				continue
			}
			fpdus++
			if op, last := fr.Opcode(); op == 4 && last {
				invalidates[fr.FromInitiator]++
			}
		}
	}
	jobs := len(sources) + warm
	if invalidates[false] != jobs || invalidates[true] < jobs { // unspent credits are returned likewise
		t.Errorf("%d Sends with Invalidate out and %d back for %d jobs", invalidates[true], invalidates[false], jobs)
	}
	r := iwarptest.Tshark(t, capture)
	r.Clean(t, fpdus)
	if r.Opcodes["Write"] == 0 || r.Opcodes["Send with Invalidate"] < 2*jobs {
		t.Errorf("tshark sees %v", r.Opcodes)
	}
}
