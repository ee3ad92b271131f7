package interop

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// perftestRun is one of perftest's programs with options that both sides take.
type perftestRun struct {
	test             string // without ib_
	size, iters, qps int
	load             string   // arguments of siw-load
	client           []string // further options of ours as client
}

// Where messages of a few bytes are sent without waiting, TCP puts many FPDUs into a segment, and QEMU's network ends one in
// the middle of an FPDU. siw takes a CRC for wrong that does not come in one piece with the padding before it
// (docs/iwarp.md). FPDUs, and what QEMU cuts, are multiples of four octets: a cut falls between padding and CRC or not at all, so
// sizes are multiples of four, without padding, or all of a connection's messages are fewer octets than one segment.
var perftestRuns = []perftestRun{
	{test: "write_bw", size: 65536, iters: 100, qps: 1},
	{test: "read_bw", size: 65536, iters: 100, qps: 1},
	{test: "send_bw", size: 65536, iters: 100, qps: 1},
	{test: "write_lat", size: 2, iters: 300, qps: 1}, // rounds are counted modulo 256
	{test: "read_lat", size: 2, iters: 200, qps: 1},
	{test: "send_lat", size: 2, iters: 600, qps: 1},

	{test: "write_bw", size: 1, iters: 50, qps: 3, client: []string{"--rtr", "none"}},
	{test: "read_bw", size: 4097, iters: 60, qps: 2, client: []string{"--rtr", "read"}},
	{test: "send_bw", size: 3, iters: 50, qps: 2, client: []string{"--rtr", "none"}},
	{test: "send_bw", size: 4, iters: 1300, qps: 2, client: []string{"--rtr", "none"}}, // more than there are receives
	{test: "write_lat", size: 5000, iters: 50, qps: 1, load: "param peer_to_peer=1 mpa_crc_required=1"},
	{test: "send_lat", size: 5000, iters: 50, qps: 1, load: "param peer_to_peer=1 mpa_crc_required=1", client: []string{"--crc=false"}},
}

func (r *perftestRun) String() string {
	s := fmt.Sprintf("ib_%s, %d messages of %d bytes", r.test, r.iters, r.size)
	if r.qps > 1 {
		s += fmt.Sprintf(", %d QPs", r.qps)
	}
	return strings.Join(append([]string{s}, r.client...), " ")
}

// ours are our options, theirs perftest's.
func (r *perftestRun) ours() []string {
	return []string{r.test, "--perftest", "--size", strconv.Itoa(r.size), "--iters", strconv.Itoa(r.iters), "--qps", strconv.Itoa(r.qps)}
}

func (r *perftestRun) theirs(port any) string {
	s := fmt.Sprintf("ib_%s -R -F -s %d -n %d -p %v", r.test, r.size, r.iters, port)
	if r.qps > 1 {
		s += fmt.Sprintf(" -q %d", r.qps)
	}
	return s
}

// reported reports whether perftest's table has a row for this run.
func (r *perftestRun) reported(out string) bool {
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 5 && f[0] == strconv.Itoa(r.size) && f[1] == strconv.Itoa(r.iters*r.qps) {
			return true
		}
	}
	return false
}

func TestPerftestOurClient(t *testing.T) {
	g := Boot(t)
	for _, r := range perftestRuns {
		t.Run(r.test+"_"+strconv.Itoa(r.size), func(t *testing.T) {
			note := row(t, "ib_"+r.test+" server", r.String())
			if r.load != "" {
				g.Load(t, r.load)
			}
			var got struct {
				Messages int
				Bytes    int64
				CRC      bool
				P50      float64 `json:"p50_us"`
				GBps     float64 `json:"gb_per_second"`
			}
			var server *Job
			var out string
			for again := 1; ; again++ {
				port, addr := g.Port()
				server = g.Listen(t, r.theirs(port), port, perfLimit)
				var err error
				if out, err = runPerf(t, addr, append(append(r.ours(), "--json"), r.client...)...); err == nil {
					break
				}
				if !spoilt(err.Error(), again, note) {
					t.Fatalf("our client: %v", err)
				}
				server.Wait(t)
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			if n := r.iters * r.qps; got.Messages != n || got.Bytes != int64(n)*int64(r.size) {
				t.Errorf("got %s, want %d messages", out, n)
			}
			theirs, status := server.Wait(t)
			if status != 0 {
				t.Errorf("perftest: exit status %d\n%s", status, tail(theirs, 15))
			}
			speed := fmt.Sprintf("%.1f MB/s", got.GBps*1e3)
			if got.P50 > 0 {
				speed = fmt.Sprintf("%.0f us round trip", got.P50)
			}
			*note = strings.TrimPrefix(*note+"; "+speed, "; ")
		})
	}
}

func TestPerftestOurServer(t *testing.T) {
	g := Boot(t)
	for _, r := range perftestRuns {
		t.Run(r.test+"_"+strconv.Itoa(r.size), func(t *testing.T) {
			note := row(t, "ib_"+r.test+" client", r.String())
			if r.load != "" {
				g.Load(t, r.load)
			}
			server, out := g.against(t, note, append(r.ours(), "--once"), func(port string) string { return r.theirs(port) + " " + HostAddr })
			if !t.Failed() && !r.reported(out) {
				t.Errorf("perftest reports no such run:\n%s", tail(out, 6))
			}
			if !t.Failed() {
				server.wantEnd(t)
			}
		})
	}
}
