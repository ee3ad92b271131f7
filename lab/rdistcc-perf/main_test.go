package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func haveRead(t *testing.T) bool {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	return dev.Attr().RDMARead
}

// startServer runs a server of the test in this process and returns its address,
// and a function that waits for its end.
func startServer(t *testing.T, name string, once bool) (addr string, wait func() error) {
	t.Helper()
	return startServerWith(t, &options{t: testNamed(t, name), server: true, listen: "127.0.0.1:0", once: once})
}

func startServerWith(t *testing.T, o *options) (addr string, wait func() error) {
	t.Helper()
	return startServerLog(t, o, io.Discard)
}

// startServerLog also copies what the server prints after its address to said, which is complete once wait has
// returned.
func startServerLog(t *testing.T, o *options, said io.Writer) (addr string, wait func() error) {
	t.Helper()
	return startServerIn(t, t.Context(), o, said)
}

// startServerIn has the identity of a context, too.
func startServerIn(t *testing.T, ctx context.Context, o *options, said io.Writer) (addr string, wait func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, o, w)
		_ = w.Close()
		ended <- err
	}()
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("server said %q: %v", line, <-ended)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(said, lines)
	}()
	_, addr, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("server said %q", line)
	}
	waited := false
	wait = func() error {
		waited = true
		<-copied
		return <-ended
	}
	t.Cleanup(func() {
		cancel()
		<-copied
		if !waited {
			if err := <-ended; err != nil {
				t.Errorf("server: %v", err)
			}
		}
	})
	return addr, wait
}

func testNamed(t *testing.T, name string) *test {
	t.Helper()
	for i := range tests {
		if tests[i].name == name {
			return &tests[i]
		}
	}
	t.Fatalf("no test %s", name)
	return nil
}

// client runs a client by its command line.
func client(t *testing.T, args ...string) (result, string, int) {
	t.Helper()
	if slices.Contains([]string{"read_bw", "read_lat"}, args[0]) && !haveRead(t) {
		t.Skip("the software device has no RDMA Read")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, stderr bytes.Buffer
	if args[0] != "nonsense" {
		args = append(args, "--json")
	}
	code := run(ctx, args, &out, &stderr)
	var r result
	if code == 0 {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", out.String(), err)
		}
	}
	return r, stderr.String(), code
}

// What was asked for is what was moved, in every mode.
func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		crc    bool
		msgs   int64
		bytes  int64
		isLat  bool
		inTime bool
	}{
		{name: "write_bw", args: []string{"--size", "1MiB", "--iters", "40"}, crc: true, msgs: 40, bytes: 40 << 20},
		{name: "write_bw", args: []string{"--size", "100", "--iters", "500", "--depth", "1"}, crc: true, msgs: 500, bytes: 50000},
		{name: "write_bw", args: []string{"--size", "64k", "--iters", "50", "--qps", "3", "--crc=false"}, msgs: 150, bytes: 150 << 16},
		{name: "write_bw", args: []string{"--size", "64k", "--iters", "20", "--fpdu", "1408"}, crc: true, msgs: 20, bytes: 20 << 16},
		{name: "send_bw", args: []string{"--size", "64KiB", "--iters", "100", "--depth", "4"}, crc: true, msgs: 100, bytes: 100 << 16},
		{name: "send_bw", args: []string{"--size", "1", "--iters", "301", "--depth", "1"}, crc: true, msgs: 301, bytes: 301},
		{name: "send_bw", args: []string{"--size", "4k", "--duration", "20ms", "--qps", "2"}, crc: true, inTime: true},
		{name: "read_bw", args: []string{"--size", "1MiB", "--iters", "40"}, crc: true, msgs: 40, bytes: 40 << 20},
		{name: "read_bw", args: []string{"--size", "1000", "--iters", "300", "--qps", "2", "--depth", "1"}, crc: true, msgs: 600, bytes: 600000},
		{name: "read_lat", args: []string{"--iters", "50"}, crc: true, msgs: 50, bytes: 3200, isLat: true},
		{name: "write_bw", args: []string{"--size", "64MiB", "--iters", "2"}, crc: true, msgs: 2, bytes: 128 << 20},
		{name: "send_bw", args: []string{"--size", "1k", "--iters", "8", "--qps", "256"}, crc: true, msgs: 2048, bytes: 2 << 20},
		{name: "write_bw", args: []string{"--iters", "3", "--mpa", "1"}, crc: true, msgs: 3, bytes: 3 << 20},
		{name: "write_bw", args: []string{"--iters", "3", "--rtr", "none", "--settle", "1ms"}, crc: true, msgs: 3, bytes: 3 << 20},
		{name: "write_lat", args: []string{"--iters", "50"}, crc: true, msgs: 50, bytes: 3200, isLat: true},
		{name: "send_lat", args: []string{"--iters", "50", "--size", "3"}, crc: true, msgs: 50, bytes: 150, isLat: true},
		{name: "send_lat", args: []string{"--iters", "300", "--wait", "event"}, crc: true, msgs: 300, bytes: 19200, isLat: true},
		{name: "read_lat", args: []string{"--iters", "300", "--wait", "hybrid"}, crc: true, msgs: 300, bytes: 19200, isLat: true},
		{name: "write_lat", args: []string{"--iters", "300", "--wait", "poll"}, crc: true, msgs: 300, bytes: 19200, isLat: true},
		{name: "send_bw", args: []string{"--size", "4k", "--iters", "100", "--wait", "hybrid:5us"}, crc: true, msgs: 100, bytes: 409600},
		{name: "tcp_bw", args: []string{"--iters", "20"}, msgs: 20, bytes: 20 << 20},
		{name: "tcp_lat", args: []string{"--iters", "50"}, msgs: 50, bytes: 3200, isLat: true},
	} {
		t.Run(c.name+" "+strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			addr, wait := startServer(t, c.name, true)
			r, stderr, code := client(t, append([]string{c.name, "-c", addr}, c.args...)...)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			if r.Test != c.name || r.CRC != c.crc {
				t.Errorf("got %s with CRC %v, want %s with CRC %v", r.Test, r.CRC, c.name, c.crc)
			}
			if !c.inTime && (r.Messages != c.msgs || r.Bytes != c.bytes) || r.Messages == 0 {
				t.Errorf("got %d messages, %d bytes; want %d, %d", r.Messages, r.Bytes, c.msgs, c.bytes)
			}
			if c.isLat != (r.P50 > 0) || c.isLat == (r.GBps > 0) {
				t.Errorf("p50 %v us, %v GB/s", r.P50, r.GBps)
			}
			if err := wait(); err != nil {
				t.Errorf("server with --once: %v", err)
			}
		})
	}
}

func TestServerServesMany(t *testing.T) {
	addr, _ := startServer(t, "write_bw", false)
	for range 3 {
		if _, stderr, code := client(t, "write_bw", "-c", addr, "--iters", "3"); code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
	}
	// Neither another test nor garbage affects other clients.
	if _, stderr, code := client(t, "send_bw", "-c", addr, "--iters", "3"); code != exitConnect || !strings.Contains(stderr, "this server runs write_bw") {
		t.Errorf("another test: exit %d, %q", code, stderr)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(c)
	_ = c.Close()
	if _, stderr, code := client(t, "write_bw", "-c", addr, "--iters", "3"); code != 0 {
		t.Errorf("afterwards: exit %d: %s", code, stderr)
	}
}

func TestArguments(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	used := ln.Addr().String()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	_ = free.Close()
	defer ln.Close()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"nonsense"}, exitArguments, "nonsense"},
		{[]string{"write_bw"}, exitArguments, "-s and -c"},
		{[]string{"write_bw", "-s", "-c", "x:1"}, exitArguments, "-s and -c"},
		{[]string{"write_bw", "-c", "x:1", "--size", "2GiB"}, exitArguments, "2GiB"},
		{[]string{"write_bw", "-c", "x:1", "--size", "12x"}, exitArguments, "12x"},
		{[]string{"write_bw", "-c", "x:1", "--size", "0"}, exitArguments, "--size"},
		{[]string{"write_bw", "-c", "x:1", "--qps", "0"}, exitArguments, "--qps"},
		{[]string{"write_bw", "-c", "x:1", "--nonsense"}, exitArguments, "--nonsense"},
		{[]string{"write_bw", "-c", "x:1", "--depth", "5000"}, exitArguments, "--depth"},
		{[]string{"write_bw", "-c", "x:1", "--fpdu", "20"}, exitArguments, "--fpdu"},
		{[]string{"write_bw", "-c", "x:1", "extra"}, exitArguments, "extra"},
		{[]string{"tcp_bw", "-c", "x:1", "--crc"}, exitArguments, "crc"},
		{[]string{"write_bw", "-c", "x:1", "--qps", "257"}, exitArguments, "--qps 257: 1 to 256"},
		{[]string{"write_bw", "-c", "x:1", "--qps", "two"}, exitArguments, "--qps"},
		{[]string{"write_bw", "-c", "x:1", "--qps", "100", "--size", "64MiB"}, exitArguments, "take fewer"},
		{[]string{"write_bw", "-c", "x:1", "--qps", "65", "--all"}, exitArguments, "without --all"},
		{[]string{"send_lat", "-c", "x:1", "--qps", "2"}, exitArguments, "one connection"},
		{[]string{"write_bw", "-c", "x:1", "--mpa", "3"}, exitArguments, "revision 1 or 2"},
		{[]string{"write_bw", "-c", "x:1", "--rtr", "maybe"}, exitArguments, "none, write, read, send"},
		{[]string{"write_bw", "-c", "x:1", "--mpa", "1", "--rtr", "read"}, exitArguments, "--rtr none"},
		{[]string{"write_bw", "-c", "x:1", "--wait", "spin"}, exitArguments, "--wait"},
		{[]string{"rping", "-c", "x:1", "--wait", "hybrid:2s"}, exitArguments, "--wait"},
		{[]string{"write_bw", "-c", "x:1", "--settle", "2m"}, exitArguments, "--settle"},
		{[]string{"write_bw", "-c", "x:1", "--settle", "5"}, exitArguments, "--settle"},
		{[]string{"write_bw", "-c", "x:1", "--iters", "-1"}, exitArguments, "negative"},
		{[]string{"write_bw", "-c", "x:1", "--duration", "-1s"}, exitArguments, "positive"},
		{[]string{"write_bw", "-c", "x:1", "--perftest", "--all"}, exitArguments, "--size"},
		{[]string{"write_lat", "-c", "x:1", "--perftest", "--duration", "1s"}, exitArguments, "--iters"},
		{[]string{"send_bw", "-s", "--perftest", "--duration", "1s"}, exitArguments, "--iters"},
		{[]string{"tcp_bw", "-s", "--perftest"}, exitArguments, "perftest"},
		{[]string{"write_bw", "-c", nobody, "--perftest"}, exitConnect, "refused"},
		{[]string{"write_bw", "-c", nobody}, exitConnect, "refused"},
		{[]string{"tcp_bw", "-c", nobody}, exitConnect, "refused"},
		{[]string{"write_bw", "-s", "--listen", used}, exitAddress, used},
		{[]string{"tcp_lat", "-s", "--listen", used}, exitAddress, used},
	} {
		_, stderr, code := client(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d and %q, want %d and one line with %q", c.args, code, stderr, c.code, c.says)
		}
	}
}

// An interrupted client or server ends.
func TestInterrupted(t *testing.T) {
	for _, name := range []string{"write_bw", "send_lat", "tcp_bw"} {
		addr, _ := startServer(t, name, false)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		o := &options{t: testNamed(t, name), client: addr, size: 4096, qps: 1, depth: 1, duration: time.Hour, crc: true}
		if _, err := measure(ctx, o); err == nil || errors.Is(err, io.EOF) && name != "tcp_bw" {
			t.Errorf("%s: got %v", name, err)
		}
		cancel()
	}
}

func TestParseParams(t *testing.T) {
	o := &options{t: testNamed(t, "send_bw"), client: "x", size: 4096, depth: 8, qps: 2, duration: time.Second, fpdu: 1408, crc: true}
	got, err := parseParams(o.params(), o.t)
	if err != nil || got.size != o.size || got.depth != o.depth || got.fpdu != o.fpdu || !got.crc {
		t.Errorf("got %+v, %v", got, err)
	}
	for i := range o.params() {
		b := o.params()
		b[i] ^= 0xff
		if _, err := parseParams(b, o.t); err == nil && i < 5 {
			t.Errorf("octet %d of magic and test changed: accepted", i)
		}
		if _, err := parseParams(o.params()[:i], o.t); err == nil {
			t.Errorf("%d octets: accepted", i)
		}
	}
}

// A sweep is one JSON object a size, for one server with --once.
func TestSweep(t *testing.T) {
	for _, name := range []string{"write_bw", "tcp_bw"} {
		addr, wait := startServer(t, name, true)
		var out, stderr bytes.Buffer
		if code := run(t.Context(), []string{name, "-c", addr, "--all", "--iters", "1", "--depth", "1", "--json"}, &out, &stderr); code != 0 {
			t.Fatalf("%s: exit %d: %s", name, code, stderr.String())
		}
		var sizes []int
		for d := json.NewDecoder(&out); d.More(); {
			var r result
			if err := d.Decode(&r); err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, r.Size)
			if r.Messages != 1 || r.Bytes != int64(r.Size) {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if len(sizes) != 11 || sizes[0] != 64 || sizes[10] != 64<<20 || !slices.IsSorted(sizes) {
			t.Errorf("%s: sizes %v", name, sizes)
		}
		if err := wait(); err != nil {
			t.Errorf("%s: server with --once: %v", name, err)
		}
	}
}

// The figures that follow from others do, and the text says the same.
func TestReport(t *testing.T) {
	addr, _ := startServer(t, "write_bw", false)
	r, stderr, code := client(t, "write_bw", "-c", addr, "--iters", "200", "--depth", "3", "--fpdu", "4096")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	near := func(what string, got, want float64) {
		if got < want*0.999 || got > want*1.001 || want <= 0 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("rate", r.Rate, float64(r.Messages)/r.Seconds)
	near("GB/s", r.GBps, float64(r.Bytes)/r.Seconds/1e9)
	near("client", r.ClientCost, r.ClientCPU*1e9/float64(r.Bytes))
	near("server", r.ServerCost, r.ServerCPU*1e9/float64(r.Bytes))
	near("both", r.GBpCPUSec, float64(r.Bytes)/(r.ClientCPU+r.ServerCPU)/1e9)
	if r.Provider != "soft" || r.MPA != 2 || r.Depth != 3 || r.QPs != 1 || r.FPDU != 4096 {
		t.Errorf("got %+v", r)
	}
	var out bytes.Buffer
	if err := r.print(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"write_bw", "200 messages of 1048576 bytes", "GB/s", "messages/s", "CPU client", "ns a byte", "server"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%q lacks %q", out.String(), s)
		}
	}
}

// TestDeadPeer: a side that loses the other one ends with one line that says so.
func TestDeadPeer(t *testing.T) {
	for _, args := range [][]string{{"write_bw"}, {"read_bw"}, {"send_bw"}, {"write_lat"}, {"send_lat"}, {"tcp_bw"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			o := &options{t: testNamed(t, args[0]), server: true, listen: "127.0.0.1:0"}
			ctx, kill := context.WithCancel(t.Context())
			r, w := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- serve(ctx, o, w)
				_ = w.Close()
			}()
			line, err := bufio.NewReader(r).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, r) }()
			_, addr, _ := strings.Cut(strings.TrimSpace(line), "listening on ")
			time.AfterFunc(100*time.Millisecond, kill)
			_, stderr, code := client(t, args[0], "-c", addr, "--duration", "1h")
			if code != exitIO || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "rdistcc-perf: ") {
				t.Errorf("exit %d and %q, want %d and one line", code, stderr, exitIO)
			}
			<-ended
		})
	}
}

// TestHelp: the help names every test and every flag of the contract.
func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--help"}, []string{"write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat", "tcp_bw", "tcp_lat", "submit"}},
		{[]string{"read_bw", "--help"}, []string{"-s, --server", "-c, --client", "--listen", "--once", "--size", "--iters", "--duration", "--qps", "--depth",
			"--fpdu", "--crc", "--markers", "--mpa", "--rtr", "--settle", "--wait", "--perftest", "--json", "--all", "ADDR:PORT", "1MiB"}},
		{[]string{"tcp_lat", "--help"}, []string{"--listen", "--json"}},
		{[]string{"--version"}, []string{"rdistcc-perf version "}},
	} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), c.args, &out, &stderr); code != 0 || stderr.Len() > 0 {
			t.Fatalf("%q: exit %d, %s", c.args, code, stderr.String())
		}
		for _, s := range c.want {
			if !strings.Contains(out.String(), s) {
				t.Errorf("%q lacks %q", c.args, s)
			}
		}
	}
}

// TestLastWord: a message whose sender closed right after it has arrived, though the receives after it are flushed.
func TestLastWord(t *testing.T) {
	o := &options{t: testNamed(t, "send_bw"), size: 64, depth: 4, qps: 1, duration: 1, crc: true}
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ln, err := dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var ends [2]*endpoint
	for i := range ends {
		if ends[i], err = newEndpoint(dev, o, o.shape()); err != nil {
			t.Fatal(err)
		}
		defer ends[i].close()
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(t.Context())
		if err == nil {
			err = req.Accept(t.Context(), ends[1].qp, nil)
		}
		accepted <- err
	}()
	o.client = ln.Addr().String()
	if err := ends[0].dial(t.Context(), dev, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	if err := ends[0].control(t.Context(), 1, 2); err != nil {
		t.Fatal(err)
	}
	if err := ends[0].qp.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ends[1].qp.Done() // all receives are there, one of them good
	if a, b, _, err := ends[1].awaitControl(t.Context()); a != 1 || b != 2 || err != nil {
		t.Errorf("got %d, %d, %v", a, b, err)
	}
	if _, _, _, err := ends[1].awaitControl(t.Context()); err == nil {
		t.Error("another message behind the end")
	}
}
