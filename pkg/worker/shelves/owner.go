package shelves

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/internal/wire"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// owner is what a file says of itself besides its shelf. It is in a part of the memory that the shelf
// does not use.
//
//	0       8       16     24     56        60       ...
//	| magic | limit | boot | sum  | name length | name ...
//
// sum is the SHA-256 of the other fields.
type owner struct {
	limit uint64 // bytes of data for which the file has blocks
	// boot is a sum of the machine's boot ID while the file is in use: what has been written is there as long as
	// the machine runs. 0: all of it is on the disk.
	boot uint64
	name string // of the tenant
}

const (
	ownerMagic = "RDSHFIL\x01" // ends with the version
	ownerSum   = 24
	ownerName  = ownerSum + sha256.Size
	maxName    = 2048 // bytes of a tenant's name
)

// append appends the encoding of o to dst, which is empty.
func (o *owner) append(dst []byte) []byte {
	dst = append(dst, ownerMagic...)
	dst = wire.AppendUint64(dst, o.limit)
	dst = wire.AppendUint64(dst, o.boot)
	dst = append(dst, make([]byte, sha256.Size)...)
	dst = wire.AppendUint32(dst, uint32(len(o.name)))
	dst = append(dst, o.name...)
	sum := sha256.Sum256(dst)
	copy(dst[ownerSum:], sum[:])
	return dst
}

// parseOwner reads what append has written, at the beginning of b.
func parseOwner(b []byte) (o owner, ok bool) {
	if len(b) < ownerName+4 || string(b[:8]) != ownerMagic {
		return o, false
	}
	n := binary.LittleEndian.Uint32(b[ownerName:])
	if n > maxName || int(n) > len(b)-ownerName-4 {
		return o, false
	}
	o = owner{limit: binary.LittleEndian.Uint64(b[8:]), boot: binary.LittleEndian.Uint64(b[16:]), name: string(b[ownerName+4:][:n])}
	return o, string(o.append(nil)) == string(b[:ownerName+4+int(n)])
}

// write writes o into a file.
func (o *owner) write(f *os.File) error {
	_, err := f.WriteAt(o.append(nil), shelf.SpareAt)
	return err
}

// readOwner reads the owner of a file.
func readOwner(f *os.File) (o owner, ok bool) {
	var b [shelf.SpareLen]byte
	if _, err := f.ReadAt(b[:], shelf.SpareAt); err != nil {
		return o, false
	}
	return parseOwner(b[:])
}

// bootID returns a number for the time since the machine was started, not 0. Where the system does not tell, it is one
// that no file has: what a killed daemon leaves is then verified.
var bootID = sync.OnceValue(func() uint64 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return uint64(os.Getpid())<<32 | 1
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(string(id))))
	return binary.LittleEndian.Uint64(sum[:]) | 1
})
