package sources

import (
	"bytes"
	"encoding/binary"
	"slices"
	"syscall"
)

// HeaderMap is a file that says where headers are. clang takes one in the place of a directory for headers.
type HeaderMap struct {
	to map[string][]string // by a header's name in lower case
}

// Layout of a header map: a head, then buckets of three words each, then strings. All words have 32 bits, except for two of 16
// after the magic number.
//
//	| magic | version, reserved | strings at | entries | buckets | longest | buckets... | strings...
//	a bucket: | key | prefix | suffix |, offsets of strings; a key of 0: no entry
const (
	mapMagic   = 0x686d6170 // "hmap", in the byte order of the machine that wrote it
	mapVersion = 1
	mapHead    = 24 // bytes
	mapBucket  = 12 // bytes
)

// ParseHeaderMap reads b, the content of a file. It returns nil if clang does not take that for a header map. clang finds an
// entry by a hash of its name; this reads all of them.
func ParseHeaderMap(b []byte) *HeaderMap {
	if len(b) < mapHead {
		return nil
	}
	order := mapOrder(b)
	if order == nil || order.Uint16(b[4:]) != mapVersion || order.Uint16(b[6:]) != 0 {
		return nil
	}
	texts, buckets := uint64(order.Uint32(b[8:])), uint64(order.Uint32(b[16:]))
	if mapHead+buckets*mapBucket > uint64(len(b)) {
		return nil
	}
	text := func(at uint32) string {
		from := texts + uint64(at)
		if from >= uint64(len(b)) {
			return ""
		}
		s, _, _ := bytes.Cut(b[from:], []byte{0})
		return string(s)
	}
	m := &HeaderMap{to: make(map[string][]string)}
	for i := range buckets {
		at := b[mapHead+i*mapBucket:]
		key := order.Uint32(at)
		if key == 0 {
			continue
		}
		name := lower(text(key))
		m.to[name] = append(m.to[name], text(order.Uint32(at[4:]))+text(order.Uint32(at[8:])))
	}
	return m
}

// mapOrder returns the byte order of a header map that begins with b, or nil if none begins so.
func mapOrder(b []byte) binary.ByteOrder {
	switch uint32(mapMagic) {
	case binary.LittleEndian.Uint32(b):
		return binary.LittleEndian
	case binary.BigEndian.Uint32(b):
		return binary.BigEndian
	}
	return nil
}

// readHeaderMap reads the file name. It returns nil if that is no header map.
func readHeaderMap(name string) *HeaderMap {
	var st syscall.Stat_t
	if stat(name, &st) != nil || !regular(&st) {
		return nil
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	b := make([]byte, mapHead, max(mapHead, int(st.Size)))
	if n, err := syscall.Pread(fd, b, 0); err != nil || n < mapHead || mapOrder(b) == nil {
		return nil
	}
	b = b[:cap(b)]
	for done := mapHead; done < len(b); {
		n, err := syscall.Pread(fd, b[done:], int64(done))
		switch {
		case err == syscall.EINTR:
		case err != nil || n == 0:
			return nil
		default:
			done += n
		}
	}
	return ParseHeaderMap(b)
}

// Mapped returns what maps make of a header's name: files, by absolute names, and the names to be looked for, of which the
// first one is that header's own. A map applies wherever it stands in the search; all that it may lead to counts.
func Mapped(maps []*HeaderMap, name string) (files, names []string) {
	names = []string{name}
	for i := 0; i < len(names) && len(names) < maxMapped; i++ {
		for _, m := range maps {
			for _, to := range m.to[lower(names[i])] {
				switch {
				case to == "":
				case to[0] == '/':
					files = append(files, to)
				case !slices.Contains(names, to):
					names = append(names, to)
				}
			}
		}
	}
	return files, names
}

// maxMapped bounds the names that one name may lead to. clang follows one relative name in each map.
const maxMapped = 64

// lower returns s with small letters, as header maps know them: those of ASCII alone.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
