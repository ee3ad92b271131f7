package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// asker asks the manager about the compiles of a link as their wrappers would (package quick), without a process for each: that costs
// more than all else that a compile takes here.
type asker struct {
	c      *ctl
	whole  ipc.Whole   // without the words
	report string      // RDISTCC_REPORT
	none   atomic.Bool // it has turned out that the wrapper must do them
}

// newAsker returns an asker for compiles in our directory with the environment env, or nil if the wrapper must do them: it keeps records
// that nothing else does, or the manager must not make the jobs (typed.Command).
func (c *ctl) newAsker(wrapper string, env []string) *asker {
	var st syscall.Stat_t
	var limit unix.Rlimit
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	verbose := c.getenv("RDISTCC_VERBOSE")
	if syscall.Stat(wrapper, &st) != nil || mask&0o600 != 0 && os.Geteuid() != 0 ||
		unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) != nil || limit.Cur != math.MaxUint64 ||
		c.getenv("RDISTCC_TRACE") != "" || c.getenv("RDISTCC_LOG") != "" || verbose != "" && verbose != "0" && verbose != "1" {
		return nil
	}
	_, err := unix.IoctlGetTermios(2, unix.TCGETS)
	return &asker{c: c, report: c.getenv("RDISTCC_REPORT"), whole: ipc.Whole{Version: ipc.Version, Terminal: err == nil, SelfDev: st.Dev, SelfIno: st.Ino,
		View: ipc.Look("."), Environ: strings.Join(env, "\x00") + "\x00"}}
}

// compile has the manager do one compile, and reports whether it has: in silence and with success, all files in their places. Otherwise
// nothing has happened that the wrapper could not begin again.
func (a *asker) compile(ctx context.Context, wrapper string, words []string) bool {
	if a == nil || a.none.Load() {
		return false
	}
	began := time.Now()
	conn, err := a.c.dial(ipc.SocketPath(a.c.getenv))
	if err != nil {
		return false // the wrapper starts a manager, or says why there is none
	}
	defer conn.Close()
	var watch sync.WaitGroup
	answered := make(chan struct{})
	defer watch.Wait()
	defer close(answered)
	watch.Go(func() {
		select {
		case <-ctx.Done():
			conn.Interrupt()
		case <-answered:
		}
	})
	m := a.whole
	m.Words = strings.Join(append([]string{wrapper}, words...), "\x00") + "\x00"
	frame := m.Append(nil)
	if len(frame) > ipc.MaxFrame || conn.Send(frame) != nil {
		return false
	}
	kind, fields, err := conn.RecvPlace()
	if err != nil || kind != ipc.KindPlace {
		// Not for want of a host: the next one would be no other.
		a.none.Store(a.none.Load() || kind == ipc.KindAsk || kind == ipc.KindLeased)
		return false
	}
	var p ipc.Place
	if p.Parse(fields) != nil {
		return false
	}
	fds, err := conn.TakeFDs(1)
	if err != nil {
		return false
	}
	defer unix.Close(fds[0])
	for _, f := range p.Files {
		how := compile.Placing{Dir: f.Dir, Temp: f.Temp, Unlinks: f.How == ipc.PlacedUnlinked}
		if how.Write(f.Name, fds[0], int64(f.Off), int64(f.Len)) != nil {
			return false // the wrapper says why
		}
	}
	if err := a.tell(p.Report); err != nil {
		fmt.Fprintf(a.c.err, "rdistcc: RDISTCC_REPORT=%s: %v\n", a.report, errors.Unwrap(err))
	}
	_ = conn.Send((&ipc.Finish{Where: ipc.WhereRemote, TotalUS: uint32(time.Since(began).Microseconds()), Closed: true}).Append(nil)) // the manager counts it
	return true
}

// tell appends a line to the report.
func (a *asker) tell(line string) error {
	if a.report == "" {
		return nil
	}
	f, err := os.OpenFile(a.report, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return cmp.Or(err, f.Close())
}
