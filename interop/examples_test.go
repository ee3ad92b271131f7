package interop

import (
	"fmt"
	"strings"
	"testing"
)

// exampleRun is a pair of rdma-core's example programs.
type exampleRun struct {
	server, client string
	theirs         string   // further options of rdma-core's
	ours           []string // the same of ours
	says           string   // what rdma-core's prints in the end
}

var exampleRuns = []exampleRun{
	{server: "rdma_server", client: "rdma_client", says: "end 0"},
	{server: "rdma_xserver", client: "rdma_xclient", says: "end 0"},
	{server: "ucmatose", client: "ucmatose", says: "return status 0"},
	{
		server: "ucmatose", client: "ucmatose", says: "return status 0",
		theirs: "-c 3 -C 20 -S 5000", ours: []string{"--qps", "3", "--count", "20", "--size", "5000"},
	},
}

func TestExamplesOurClient(t *testing.T) {
	g := Boot(t)
	for _, r := range exampleRuns {
		t.Run(r.client+strings.ReplaceAll(r.theirs, " ", ""), func(t *testing.T) {
			note := row(t, r.server, strings.TrimSpace(r.client+" of ours "+r.theirs))
			var out string
			var status int
			for again := 1; ; again++ {
				port, addr := g.Port()
				server := g.Listen(t, fmt.Sprintf("%s -p %d %s", r.server, port, r.theirs), port, perfLimit)
				ours, err := run(t, perfLimit, "rdistcc-perf", append(append([]string{"example", r.client}, r.ours...), "-c", addr, "--settle", perfSettle)...)
				out, status = server.Wait(t)
				if err != nil && spoilt(err.Error(), again, note) {
					continue
				}
				if err != nil || !strings.Contains(ours, "done") {
					t.Errorf("our %s: %v\n%s", r.client, err, ours)
				}
				break
			}
			if status != 0 || !strings.Contains(out, r.says) {
				t.Errorf("%s: exit status %d\n%s", r.server, status, tail(out, 10))
			}
		})
	}
}

func TestExamplesOurServer(t *testing.T) {
	g := Boot(t)
	for _, r := range exampleRuns {
		t.Run(r.server+strings.ReplaceAll(r.theirs, " ", ""), func(t *testing.T) {
			note := row(t, r.client, strings.TrimSpace(r.server+" of ours "+r.theirs))
			server, out := g.against(t, note, append([]string{"example", r.server}, r.ours...), func(port string) string {
				return fmt.Sprintf("%s -s %s -p %s %s", r.client, HostAddr, port, r.theirs)
			})
			if !strings.Contains(out, r.says) {
				t.Errorf("%s:\n%s", r.client, tail(out, 10))
			}
			if !t.Failed() {
				server.wantEnd(t)
			}
		})
	}
}
