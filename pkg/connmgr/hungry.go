package connmgr

import (
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/history"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

const (
	// hungryFor is how long the manager remembers that hosts could not compile a source. By then, the hosts
	// or the source may have changed.
	hungryFor = time.Hour
	maxHungry = 1024
)

// hungry remembers compiles that died on two hosts in a row, usually for lack of memory. Trying them again
// would only cost the hosts the same again. It is safe for concurrent use.
type hungry struct {
	mu   sync.Mutex
	died map[history.Key]time.Time
}

// add remembers a compile.
func (h *hungry) add(now time.Time, k history.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.died == nil || len(h.died) >= maxHungry {
		h.died = make(map[history.Key]time.Time)
	}
	h.died[k] = now
}

// objects returns why a compile must not go to a host, or nil if it may.
func (h *hungry) objects(now time.Time, k history.Key) *ipc.GoLocal {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.died[k]
	if !ok || now.Sub(at) > hungryFor {
		return nil
	}
	return &ipc.GoLocal{Reason: reason.Memory, Code: reason.ExitConnect,
		Detail: "its compiler died on two hosts " + now.Sub(at).Round(time.Second).String() + " ago"}
}
