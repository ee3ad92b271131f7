package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// maxKept bounds how much is read of the file that a manager left, in bytes.
const maxKept = 16 << 20

// kept returns what the last manager wrote down, or nil: none has run here, its file cannot be read, or it
// belongs to a user that is not trusted.
func (c *ctl) kept() *report.Kept {
	f, err := os.OpenFile(report.KeptFile(ipc.SocketPath(c.getenv)), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKept))
	var k report.Kept
	if err != nil || json.Unmarshal(data, &k) != nil {
		return nil
	}
	return &k
}

// lastLine says that no manager runs, and what became of the last one, with its version and since when it ran.
func (c *ctl) lastLine(n *report.NotRunning, version string, since, now time.Time) string {
	head := fmt.Sprintf("no connection manager runs at %s; the first compile starts one\n", ipc.SocketPath(c.getenv))
	switch {
	case n.Ended && n.Why != "":
		head += fmt.Sprintf("the last one (%s) ran for %s and ended %s ago: %s\n", version, figure.Age(n.Kept.Sub(since)), figure.Age(now.Sub(n.Kept)), n.Why)
	case n.Ended:
		head += fmt.Sprintf("the last one (%s) ran for %s and ended %s ago\n", version, figure.Age(n.Kept.Sub(since)), figure.Age(now.Sub(n.Kept)))
	default:
		head += fmt.Sprintf("the last one (%s) started %s ago and was killed; it wrote this down %s ago\n", version, figure.Age(now.Sub(since)), figure.Age(now.Sub(n.Kept)))
	}
	return head + "what it knew then:\n"
}
