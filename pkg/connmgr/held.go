package connmgr

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"

	"github.com/rdistcc/rdistcc/internal/wholefile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
)

// held keeps in a file what hosts hold, so that they are not sent it again when the manager has ended and another one begins.
type held struct {
	file string
	read func() map[string]*holdings.Record // by address; reads the file when a first host is to be used, which may be a predecessor's until then

	mu    sync.Mutex
	saved []byte
}

// mostHeld bounds the file, in bytes.
const mostHeld = 64 << 20

func newHeld(file string) *held {
	return &held{file: file, read: sync.OnceValue(func() map[string]*holdings.Record {
		records := make(map[string]*holdings.Record)
		if st, err := os.Stat(file); err != nil || st.Size() > mostHeld {
			return records
		}
		b, _ := os.ReadFile(file) // none that can be read is none
		for _, r := range holdings.Decode(b) {
			records[r.Addr] = r
		}
		return records
	})}
}

// of returns what the host at addr held, or nil.
func (x *held) of(addr string) *holdings.Record {
	if x.file == "" {
		return nil
	}
	return x.read()[addr]
}

// saveHeld writes what hosts hold, with what others held that were not used. The file is the successor's if there is one.
func (m *Manager) saveHeld() {
	x := m.held
	if x.file == "" || m.service.left.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	records := m.farm.Held()
	if len(records) == 0 {
		return
	}
	now := make(map[string]bool, len(records))
	for _, r := range records {
		now[r.Addr] = true
	}
	for addr, r := range x.read() {
		if !now[addr] && len(records) < mostHosts {
			records = append(records, r)
		}
	}
	b := holdings.Encode(records)
	if bytes.Equal(b, x.saved) || len(b) > mostHeld {
		return
	}
	err := os.MkdirAll(filepath.Dir(x.file), 0o700)
	if err == nil {
		err = wholefile.Replace(x.file, b)
	}
	if err != nil {
		m.o.Log.Warn("keep what hosts hold", "file", x.file, "err", err)
		return
	}
	x.saved = b
}

// mostHosts bounds the hosts in the file.
const mostHosts = 1024
