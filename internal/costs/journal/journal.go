// Package journal keeps on disk what each compile read and took, for the last days.
//
// A journal is a directory of files NUMBER.log, the newest with the highest number, that only their user can read. Each is
// complete in itself: names, states of files and lists of them stand in it once, and compiles refer to them. So a compile
// takes some 50 bytes if another one in the file has read the same, and a byte or two for each header otherwise. The oldest
// files go when all together exceed maxBytes.
//
//	file:  "rdccosts" | version u32 | batches
//	batch: "RDCB" | length of the rest u32 | the first 4 bytes of its SHA-256 | what is numbered from here: names, files, lists | time | items
//
// Numbers are little-endian; those of which no size is given are uvarints. An item is a byte that says what it is, and then
//
//	name    length, bytes
//	file    name, size in bytes, digest u64
//	list    length in bytes, runs of files
//	compile see appendCompile
//
// A batch says from which numbers on it names things, so that a damaged one takes only what it has itself and what refers to that.
package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

const (
	magic     = "rdccosts"
	version   = 1
	headLen   = len(magic) + 4
	batchMark = "RDCB"
	batchHead = len(batchMark) + 8
)

// How much is kept.
const (
	maxFile  = 16 << 20 // bytes of a file, a batch more or less
	maxBytes = 64 << 20 // of all files
	maxFiles = 256      // each start of a manager begins one
	maxReads = 1 << 16  // files in a list; further ones are left out
	maxName  = 1 << 12  // bytes of a name; of a longer one the begin
)

// sumOf returns the sum over what follows a batch's head.
func sumOf(batch []byte) uint32 {
	sum := sha256.Sum256(batch[batchHead:])
	return binary.LittleEndian.Uint32(sum[:])
}

// File is a state of a file that compiles have read. Another content is another state.
type File struct {
	Name string // absolute; any bytes
	Size uint64 // bytes
	Sum  uint64 // the first 8 bytes of its content's digest
}

// Place is where a compile ended.
type Place uint8

// The places.
const (
	Remote Place = iota // on a host
	Cached              // in the cache of results
	Here                // on the build host
)

// Compile is a compile that has ended.
type Compile struct {
	Ended   time.Time // in milliseconds
	Build   uint64    // the number of its build
	Command uint64    // tells apart what compiler and words may do to the result; 0: not known
	Place   Place
	OK      bool // its exit status was 0
	Asked   bool // the cache was asked
	// Exact means that Reads are without those of the project's headers that it did not read, because the condition of an include
	// did not hold. Otherwise they are all files that it could have read.
	Exact  bool
	Source string // absolute
	Output string // absolute, or ""
	Where  string // the host, or the tier of the cache
	Why    string // Here: the reason. Otherwise why the cache had no result, in words
	// CPU is what it takes on a core of the build host, and Ran how long the compiler ran, each 0 if it is not known. Of a
	// result from the cache, both are what its compile took.
	CPU, Ran time.Duration
	Memory   uint64 // bytes at its peak; 0: not known
	// Reads are the files that it read, its source among them, sorted: indices in Log.Files. Compiles that read the same share it, so it must not
	// be changed. nil: not known.
	Reads []uint32
}

// Kinds of items.
const (
	itemName    = 'n'
	itemFile    = 'f'
	itemList    = 'l'
	itemCompile = 'c'
)

// Bits of a compile's flags. Its place is in the lowest two.
const (
	flagOK    = 1 << 2
	flagAsked = 1 << 3
	flagExact = 1 << 4
)

// appendRuns appends a list of sorted, different numbers. A number is its distance to the one before, less one, times two; if more
// follow it without a gap, one is added, and how many follow less one comes next. Headers that were first read together have
// consecutive numbers, so this is shorter than a bit for each.
func appendRuns(b []byte, list []uint32) []byte {
	next := uint32(0)
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i]+uint32(n) {
			n++
		}
		gap := uint64(list[i]-next) << 1
		if n == 1 {
			b = binary.AppendUvarint(b, gap)
		} else {
			b = binary.AppendUvarint(binary.AppendUvarint(b, gap|1), uint64(n-2))
		}
		i += n
		next = list[i-1] + 1
	}
	return b
}

// runs calls each with the numbers of a list that appendRuns has made. It reports whether that was one, of at most maxReads
// numbers.
func runs(b []byte, each func(n uint64)) bool {
	next, count := uint64(0), uint64(0)
	for len(b) > 0 {
		gap, k := binary.Uvarint(b)
		if k <= 0 {
			return false
		}
		b = b[k:]
		n := uint64(1)
		if gap&1 != 0 {
			more, k := binary.Uvarint(b)
			if k <= 0 || more > maxReads {
				return false
			}
			b, n = b[k:], more+2
		}
		if next += gap >> 1; next > 1<<32 || count+n > maxReads {
			return false
		}
		for range n {
			each(next)
			next++
		}
		count += n
	}
	return true
}
