package telemetry

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// tailSize bounds the lines of the log that are kept for readers, in bytes.
const tailSize = 256 << 10

// tail is the end of a log.
type tail struct {
	mu    sync.Mutex
	lines [][]byte
	size  int           // bytes of lines
	next  uint64        // number of the line that is added next
	more  chan struct{} // closed when a line is added; nil: nobody waits
}

// add takes one line.
func (t *tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, bytes.Clone(line))
	t.size += len(line)
	t.next++
	for t.size > tailSize && len(t.lines) > 1 {
		t.size -= len(t.lines[0])
		t.lines = t.lines[1:]
	}
	if t.more != nil {
		close(t.more)
		t.more = nil
	}
}

// last returns the number of the line that is n before the end.
func (t *tail) last(n int) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next - uint64(min(n, len(t.lines)))
}

// from returns the lines from number n on, how many are not kept any more, and what is closed when there are more.
func (t *tail) from(n uint64) (lines [][]byte, next, lost uint64, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.more == nil {
		t.more = make(chan struct{})
	}
	if first := t.next - uint64(len(t.lines)); n < first {
		n, lost = first, first-n
	}
	return t.lines[len(t.lines)-int(t.next-n):], t.next, lost, t.more
}

// defaultLines is how many lines /log has unless the reader wants another number.
const defaultLines = 100

// ServeHTTP answers with the last lines (lines=N), and with follow=true with all that come after them, till the reader goes.
func (t *tail) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := defaultLines
	if s := r.FormValue("lines"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 0 {
			plain(w, http.StatusBadRequest, fmt.Sprintf("lines=%s: a number of lines", s))
			return
		}
	}
	follow, err := strconv.ParseBool(r.FormValue("follow"))
	if err != nil && r.Form.Has("follow") {
		plain(w, http.StatusBadRequest, "follow=true or follow=false")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	answer := http.NewResponseController(w)
	for at := t.last(n); ; {
		lines, next, lost, more := t.from(at)
		at = next
		if lost > 0 {
			lines = append([][]byte{fmt.Appendf(nil, "(%d lines are not kept any more)\n", lost)}, lines...)
		}
		_ = answer.SetWriteDeadline(time.Now().Add(10 * time.Second)) // it is a connection of this server
		for _, l := range lines {
			if _, err := w.Write(l); err != nil {
				return
			}
		}
		if !follow || answer.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
