package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes of hosts' stores, in bytes. The units bring more than their memory together holds, so that contents
// are dropped all the time.
const (
	storeMemory = 16 << 20 // the smallest possible
	storeDisk   = 1 << 30  // files disappear because of strikes, never to make room
	storeRoom   = 128 << 20
)

// One host has only memory, and is told that it is short of it; the next two have a disk as well; the
// others have the defaults.
const (
	smallHost = 0
	diskHosts = 2 // from the second host on
)

// ofStore reports whether a kind strikes stores.
func (k kind) ofStore() bool { return k >= flipStored && k <= shortMemory }

// target returns the host that a strike hits, given that it would hit h if any could be hit.
func (k kind) target(h, hosts int) int {
	switch k {
	case shortMemory:
		return smallHost
	case flipStored, cutStored, dropStored, fillStore, lockStore, removeStore, killStore:
		return 1 + h%max(min(diskHosts, hosts-1), 1)
	default:
		return h
	}
}

// hostStore is where a host keeps contents.
type hostStore struct {
	room    string // file system of its own that contains dir; "": there is none
	dir     string // "": it has no disk
	meminfo string // file that it sees as /proc/meminfo; "": none
}

// openStore creates what h keeps contents in, and returns the settings for it.
func (s *site) openStore(h *host) (settings string, err error) {
	if h.index > smallHost+diskHosts {
		return "", nil
	}
	if s.disks { // root
		h.store.meminfo = fmt.Sprintf("%s/meminfo%d", s.root, h.index+1)
		if err := h.store.setFree(0); err != nil {
			return "", err
		}
	}
	small := fmt.Sprintf("store: {memory: %dB", storeMemory)
	if h.index == smallHost {
		return small + "}\n", nil
	}
	room := fmt.Sprintf("%s/store%d", s.root, h.index+1)
	if err := os.Mkdir(room, 0o700); err != nil {
		return "", err
	}
	if s.disks {
		if err := mount(room, storeRoom); err != nil {
			return "", err
		}
		h.store.room = room
		// What is mounted over it later is then visible to the daemon, too.
		if err := unix.Mount("", room, "", unix.MS_SHARED, ""); err != nil {
			return "", errors.Join(err, h.store.unmount())
		}
	}
	h.store.dir = filepath.Join(room, "store")
	return fmt.Sprintf("%s, disk: %dB, dir: %s}\n", small, storeDisk, h.store.dir), nil
}

func (x *hostStore) unmount() error {
	if x.room == "" {
		return nil
	}
	return unix.Unmount(x.room, unix.MNT_DETACH)
}

var available = regexp.MustCompile(`(?m)^MemAvailable:.*$`)

// setFree sets how much memory appears to be free on the host's machine, in bytes; 0: the real value.
func (x *hostStore) setFree(bytes int) error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	if bytes > 0 {
		text = available.ReplaceAll(text, fmt.Appendf(nil, "MemAvailable: %d kB", bytes>>10))
	}
	return os.WriteFile(x.meminfo, text, 0o600)
}

// contents returns the files with contents on disk.
func (x *hostStore) contents() []string {
	all, _ := filepath.Glob(x.dir + "/*-*/*") // the pattern is right
	var list []string
	for _, name := range all {
		if len(filepath.Base(name)) == 64 { // otherwise it is being written
			list = append(list, name)
		}
	}
	return list
}

// spoilt is a file that was tampered with.
type spoilt struct {
	name string
	info os.FileInfo // as it was left; nil: it was deleted
}

// met reports whether a daemon has noticed: the wrong file was removed or replaced.
func (f spoilt) met() bool {
	now, err := os.Lstat(f.name)
	switch {
	case f.info == nil:
		return err == nil
	case err != nil:
		return errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(now, f.info) || !now.ModTime().Equal(f.info.ModTime())
}

// ways are the ways to spoil a file.
var ways = []kind{flipStored, cutStored, dropStored}

// spoil spoils most files, each in the way of k, or in any way.
func (x *hostStore) spoil(k kind, rnd *rand.Rand) (list []spoilt, err error) {
	for _, name := range x.contents() {
		if rnd.IntN(4) == 0 {
			continue
		}
		way := k
		switch k {
		case killStore, lockStore:
			way = ways[rnd.IntN(len(ways))]
		case fillStore:
			way = dropStored // replacing an existing file needs no room
		}
		info, err := spoil(name, way, rnd)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the daemon was faster
		}
		if err != nil {
			return list, err
		}
		list = append(list, spoilt{name, info})
	}
	return list, nil
}

func spoil(name string, way kind, rnd *rand.Rand) (os.FileInfo, error) {
	if way == dropStored {
		return nil, os.Remove(name)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch size := info.Size(); way {
	case cutStored:
		// It may have grown as well.
		err = f.Truncate(rnd.Int64N(size + size/4 + 1))
	default:
		b := make([]byte, 1)
		for at := int64(0); at < size && err == nil; at += 4096 { // in each page: some of them matter to a compile
			off := at + rnd.Int64N(min(4096, size-at))
			if _, err = f.ReadAt(b, off); err == nil {
				b[0] ^= 1 << rnd.IntN(8)
				_, err = f.WriteAt(b, off)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return f.Stat()
}

// random returns the strike's own random numbers, which depend only on the plan.
func (s strike) random() *rand.Rand { return rand.New(rand.NewPCG(uint64(s.job), uint64(s.kind))) }

// store strikes a host's store.
func (n *nemesis) store(r *struck, h *host) (err error) {
	x := &h.store
	n.kept[h.index].Lock()
	defer n.kept[h.index].Unlock()
	r.from = time.Now()
	if n.d.over() {
		return nil // its turn came too late
	}
	switch r.kind {
	case flipStored, cutStored, dropStored:
		n.aimed(func() bool { return len(x.contents()) > 0 })
		if _, err := n.squeeze(h, 0); err != nil { // so that files are read
			return err
		}
		list, err := x.spoil(r.kind, r.random())
		r.later = func() bool { return n.noticed(list) }
		return err
	case fillStore, lockStore: // what is wrong, or gone, is not written again
		if _, err := n.squeeze(h, 0); err != nil { // likewise
			return err
		}
		list, err := x.spoil(r.kind, r.random())
		if err != nil {
			return err
		}
		n.spoils.Add(int64(len(list)))
		if r.kind == fillStore {
			file, err := fill(x.room)
			if err != nil {
				return err
			}
			return errors.Join(n.evicting(r, h), os.Remove(file))
		}
		if err := lock(x.room); err != nil {
			return err
		}
		return errors.Join(n.evicting(r, h), unix.Unmount(x.room, unix.MNT_DETACH))
	default:
		r.hit, err = n.squeeze(h, r.hold)
		return err
	}
}

// evicting waits until a host has met what it cannot write: it lacks something, and drops for good what replaces it.
func (n *nemesis) evicting(r *struck, h *host) error {
	count := func() (float64, error) {
		m, err := metrics(n.ctx, n.s.page(h.index))
		return m[lacks] + m[evictions], err
	}
	before, down := count()
	n.sleep(r.hold)
	_, err := n.squeeze(h, 0)
	now, too := count()
	r.hit = down == nil && too == nil && now > before
	return err
}

// during waits a while for something, but no longer than there are jobs.
func (n *nemesis) during(come func() bool) bool {
	for end := time.Now().Add(armedFor); !come(); n.sleep(20 * time.Millisecond) {
		if time.Now().After(end) || n.d.over() || n.ctx.Err() != nil {
			return come()
		}
	}
	return true
}

// noticed waits until a daemon has noticed one of the spoilt files, and reports whether one has.
func (n *nemesis) noticed(list []spoilt) bool {
	n.spoils.Add(int64(len(list)))
	some := n.during(func() bool { return slices.ContainsFunc(list, spoilt.met) })
	for _, f := range list {
		if f.met() {
			n.met.Add(1)
		}
	}
	return some
}

// lock mounts the same directory over dir, read-only.
func lock(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	if err != nil {
		err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return err
}

// freeMemory is the free memory of a host that is short of it, in bytes: too little for contents to stay,
// but enough for jobs not to be refused.
const freeMemory = 220 << 20

// squeeze makes a host believe that its machine is short of memory, for at least a given time and until it
// has dropped the contents there. It reports whether it has.
func (n *nemesis) squeeze(h *host, least time.Duration) (dropped bool, err error) {
	x := &h.store
	if x.meminfo == "" {
		return false, nil
	}
	before, err := n.s.series(n.ctx, h, storeBytes)
	if err != nil || before == 0 {
		return false, nil // it is down, or has just come up
	}
	if err := x.setFree(freeMemory); err != nil {
		return false, err
	}
	for began := time.Now(); (time.Since(began) < least || !dropped && time.Since(began) < armedFor) && !n.d.over() && n.ctx.Err() == nil; n.sleep(100 * time.Millisecond) {
		now, err := n.s.series(n.ctx, h, storeBytes)
		dropped = dropped || err == nil && now < before/2
	}
	return dropped, x.setFree(0)
}
