package az

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// span is a part of a buffer, in bytes.
type span struct{ from, to int }

// dirt finds the pages of a private mapping that the application has written to: those that are not the file's any more.
type dirt struct {
	pagemap *os.File // of this process
	scans   bool     // it knows the ioctl PAGEMAP_SCAN: Linux 6.7
	regions [64]region
	words   []byte
}

// region is the kernel's struct page_region.
type region struct{ start, end, _ uint64 }

// scanArg is the kernel's struct pm_scan_arg.
type scanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages uint64
	inverted, mask, anyOf, returned                         uint64
}

const (
	pagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)

	isFile    = 1 << 2
	isPresent = 1 << 3
	isSwapped = 1 << 4

	bitFile    = 1 << 61 // of a word of pagemap
	bitSwapped = 1 << 62
	bitPresent = 1 << 63
)

func newDirt() (*dirt, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, fmt.Errorf("az: %w", err)
	}
	return &dirt{pagemap: f, scans: true}, nil
}

// of appends the dirty parts of m to spans.
func (d *dirt) of(m []byte, spans []span) ([]span, error) {
	if d.scans {
		s, err := d.scan(m, spans)
		if err == nil || !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EINVAL) {
			return s, err
		}
		d.scans = false
	}
	return d.read(m, spans)
}

// scan asks by ioctl.
func (d *dirt) scan(m []byte, spans []span) ([]span, error) {
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m))))
	arg := scanArg{
		size: uint64(unsafe.Sizeof(scanArg{})), start: base, end: base + uint64(len(m)),
		vec: uint64(uintptr(unsafe.Pointer(&d.regions))), vecLen: uint64(len(d.regions)),
		inverted: isFile, mask: isFile, anyOf: isPresent | isSwapped, returned: isPresent,
	}
	for arg.start < arg.end {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, d.pagemap.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		if errno != 0 {
			return spans, fmt.Errorf("az: scan pages: %w", errno)
		}
		for _, r := range d.regions[:n] {
			spans = append(spans, span{int(r.start - base), int(r.end - base)})
		}
		if arg.walkEnd <= arg.start {
			return spans, errors.New("az: the scan of pages does not go on")
		}
		arg.start = arg.walkEnd
	}
	return spans, nil
}

// read reads the words of pagemap.
func (d *dirt) read(m []byte, spans []span) ([]span, error) {
	const word = 8
	first := int64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) / smallPage
	n := len(m) / smallPage
	if cap(d.words) < n*word {
		d.words = make([]byte, n*word)
	}
	words := d.words[:n*word]
	if _, err := d.pagemap.ReadAt(words, first*word); err != nil {
		return spans, fmt.Errorf("az: %w", err)
	}
	for i := range n {
		w := binary.NativeEndian.Uint64(words[i*word:])
		if w&bitFile != 0 || w&(bitPresent|bitSwapped) == 0 {
			continue
		}
		if k := len(spans) - 1; k >= 0 && spans[k].to == i*smallPage {
			spans[k].to += smallPage
		} else {
			spans = append(spans, span{i * smallPage, (i + 1) * smallPage})
		}
	}
	return spans, nil
}
