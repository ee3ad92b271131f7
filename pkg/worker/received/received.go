package received

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Options configure a Store.
type Options struct {
	Dir   string // made if need be; only this user can read it
	Quota int64  // bytes of all contents together; no tenant has more than half of it
	Log   *slog.Logger
}

// Errors of a Store. Others are trouble with its directory.
var (
	// ErrUnknown says that there is no such parcel, or none that this tenant has offered.
	ErrUnknown = errors.New("no such toolchain")
	// ErrIncomplete says that contents of a parcel are missing.
	ErrIncomplete = errors.New("contents of the toolchain are missing")
	// ErrQuota is wrapped by the error about a parcel for which there is no room.
	ErrQuota = errors.New("no room for the toolchain")
	// ErrWrong is wrapped by the error about bytes that are not those of the content, or not where they belong.
	ErrWrong = errors.New("not the content that was announced")
	// ErrInUse is wrapped by Open's error about a directory that another daemon uses.
	ErrInUse = errors.New("the directory is in use by another daemon")
	// ErrBusy says that the content is being written by another client.
	ErrBusy = errors.New("another client is sending it")
)

// pendingTime is how long a parcel that was offered stays if nothing of it arrives.
const pendingTime = time.Hour

// pendingMost bounds the parcels that a tenant has offered and not finished.
const pendingMost = 32

// noteTime is how old the time of a toolchain's last use may be on the disk.
const noteTime = time.Minute

// Store keeps received toolchains. Its methods may be called concurrently.
type Store struct {
	o    Options
	lock *os.File

	mu       sync.Mutex
	parcels  map[unit.ToolchainID]*held
	contents map[string]int64    // complete ones: bytes by file name
	writing  map[string]*writers // by content; those that have ended stay while it is wanted
	total    int64               // bytes of contents

	now atomic.Pointer[snapshot]
}

// held is a parcel.
type held struct {
	*parcel.Parcel
	size     uint64 // bytes of its contents
	names    uint64 // bytes that its entries cost beside them
	encoded  []byte // until it is complete
	complete bool
	tenants  map[string]bool // that have offered it
	users    int             // jobs that use it
	checked  sync.Mutex      // held while contents are read; guards whole
	whole    bool            // the contents were right when they were read, since the start
	used     time.Time
	noted    time.Time // when used was last written to the disk
}

// Open opens the directory. It fails if another daemon uses it.
func Open(o Options) (*Store, error) {
	s := &Store{o: o, parcels: make(map[unit.ToolchainID]*held), contents: make(map[string]int64), writing: make(map[string]*writers)}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("received toolchains: %w", err)
	}
	s.mu.Lock()
	s.unlock()
	return s, nil
}

// Close lets another daemon use the directory. Nothing may be under way.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock.Close()
}

func (s *Store) path(words ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, words...)...)
}

func idName(id unit.ToolchainID) string { return hex.EncodeToString(id[:]) }

func (s *Store) root(id unit.ToolchainID) string { return s.path("roots", idName(id)) }

// snapshot is what others see of a Store without waiting for it, as it may be waiting for its disk.
type snapshot struct {
	usable map[string][]Toolchain // by tenant
	Stats
}

// Stats say what is kept.
type Stats struct {
	Toolchains int   `json:"toolchains"`
	Bytes      int64 `json:"bytes"` // of all contents, also of those whose toolchain is not complete
}

// Toolchain is a received toolchain that can be used.
type Toolchain struct {
	*parcel.Parcel
	Root string // the directory in which it is laid out
}

// List returns the toolchains that a tenant can use, by ID. The caller does not change the list.
func (s *Store) List(tenant string) []Toolchain { return s.now.Load().usable[tenant] }

// Stats returns what is kept.
func (s *Store) Stats() Stats { return s.now.Load().Stats }

// unlock ends a change.
func (s *Store) unlock() {
	now := &snapshot{usable: make(map[string][]Toolchain), Stats: Stats{Bytes: s.total}}
	for id, h := range s.parcels {
		if !h.complete {
			continue
		}
		now.Toolchains++
		for tenant := range h.tenants {
			now.usable[tenant] = append(now.usable[tenant], Toolchain{h.Parcel, s.root(id)})
		}
	}
	for _, list := range now.usable {
		slices.SortFunc(list, func(x, y Toolchain) int { return bytes.Compare(x.ID[:], y.ID[:]) })
	}
	s.now.Store(now)
	s.mu.Unlock()
}
