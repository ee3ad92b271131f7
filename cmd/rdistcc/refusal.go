package main

import (
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// startRefusal says why a manager ended at its start, in the manager's own words: a wrong
// setting, say, with file and line. It comes through the pipe on which a manager says that
// it serves, and is kept in the lock file for the commands that follow.
type startRefusal struct {
	code uint8  // one of rdistcc's exit statuses
	line string // for a person
}

func (r *startRefusal) Error() string {
	if r.code == reason.ExitArguments {
		return r.line // a setting: the line says it all
	}
	return "connection manager did not start: " + r.line
}

// maxRefusal bounds how much of a refusal is read, in bytes.
const maxRefusal = 1024

// parseRefusal reads the exit status, a byte, and the line that follows. It returns nil if
// b is not a refusal.
func parseRefusal(b []byte) *startRefusal {
	if len(b) < 2 || b[0] < reason.ExitGeneral {
		return nil
	}
	return &startRefusal{code: b[0], line: string(b[1:])}
}

// keepFailure records in the lock file, for failedLately, that a manager did not start.
func keepFailure(lock int, err error) {
	text := []byte("\nfailed") // not a refusal
	if r, ok := err.(*startRefusal); ok {
		text = append([]byte{r.code}, r.line...)
	}
	// An error only costs time.
	_ = syscall.Ftruncate(lock, 0)
	_, _ = syscall.Pwrite(lock, text, 0)
}

// failedLately returns why the last attempt to start a manager failed, if it was recent.
// It saves a big build from waiting for the failure file by file. If the reason is a file
// that has been edited since, a new attempt is worth its time.
func (s *settings) failedLately(lock int, log string) error {
	var st syscall.Stat_t
	if syscall.Fstat(lock, &st) != nil || st.Size == 0 {
		return nil
	}
	failed := time.Unix(st.Mtim.Unix())
	if age := time.Since(failed); age < 0 || age >= notAgain {
		return nil
	}
	var buf [maxRefusal]byte
	n, _ := syscall.Pread(lock, buf[:], 0)
	r := parseRefusal(buf[:max(n, 0)])
	switch {
	case r == nil:
		return managerError("connection manager did not start a moment ago (see " + log + ")")
	case r.code == reason.ExitArguments && s.edited(r.line, failed):
		return nil
	}
	return r
}

// edited reports whether the file that line begins with has been edited or removed since then,
// or is no longer the configuration in use.
func (s *settings) edited(line string, then time.Time) bool {
	file, _, ok := strings.Cut(line, ":")
	if !ok || !strings.HasPrefix(file, "/") {
		return false
	}
	if own := s.getenv("RDISTCC_CONFIG"); own != "" && typed.Absolute(own, workingDir(s)) != file {
		return true
	}
	var st syscall.Stat_t
	if typed.Stat(file, &st) != nil {
		return !strings.HasSuffix(line, syscall.ENOENT.Error())
	}
	return time.Unix(st.Ctim.Unix()).After(then)
}
