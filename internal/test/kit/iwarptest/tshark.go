package iwarptest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TsharkReport is the output of Wireshark's dissectors for a capture.
type TsharkReport struct {
	Requests, Replies int
	FPDUs             int
	GoodCRCs, BadCRCs int
	Malformed         []string // lines that call something malformed or wrong
	Opcodes           map[string]int
}

var tsharkOpcode = regexp.MustCompile(`OpCode: (.*) \(0x`)

// Tshark decodes a capture. It skips the test if tshark is not installed.
func Tshark(t testing.TB, path string) *TsharkReport {
	t.Helper()
	bin, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	// The two heuristics take short Sends for RPC-over-RDMA or SMB Direct.
	cmd := exec.Command(bin, "-r", path, "-O", "iwarp_mpa,iwarp_ddp_rdmap",
		"--disable-heuristic", "rpcrdma_iwarp", "--disable-heuristic", "smb_direct_iwarp")
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "HOME="+t.TempDir()) // without anyone's preferences
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, out)
	}
	r := &TsharkReport{Opcodes: make(map[string]int)}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "ID Req frame:"):
			r.Requests++
		case strings.HasPrefix(line, "ID Rep frame:"):
			r.Replies++
		case strings.HasPrefix(line, "ULPDU length:"):
			r.FPDUs++
		}
		if strings.Contains(line, "(Good CRC32)") {
			r.GoodCRCs++
		}
		if strings.Contains(line, "Bad CRC32") {
			r.BadCRCs++
		}
		// It objects to revision 2, which is newer than tshark's knowledge.
		if strings.Contains(line, "alformed") || strings.Contains(line, "[Expert Info (Error") || strings.Contains(line, "Bad length") {
			r.Malformed = append(r.Malformed, line)
		}
		if m := tsharkOpcode.FindStringSubmatch(line); m != nil {
			r.Opcodes[m[1]]++
		}
	}
	return r
}

// Clean fails the test unless the capture holds want FPDUs, each with a right CRC,
// and nothing malformed.
func (r *TsharkReport) Clean(t testing.TB, want int) {
	t.Helper()
	if len(r.Malformed) > 0 {
		t.Errorf("tshark finds fault: %q", r.Malformed)
	}
	if r.BadCRCs > 0 || r.GoodCRCs != r.FPDUs {
		t.Errorf("of %d CRCs %d are good and %d bad", r.FPDUs, r.GoodCRCs, r.BadCRCs)
	}
	if r.FPDUs != want {
		t.Errorf("tshark sees %d FPDUs, want %d", r.FPDUs, want)
	}
}
