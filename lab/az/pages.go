package az

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pages says what an arena's memory is made of.
type Pages uint8

const (
	Huge  Pages = iota // 2 MiB
	Small              // 4 KiB
)

// String returns the size.
func (p Pages) String() string { return [...]string{Huge: "2 MiB", Small: "4 KiB"}[p] }

// size returns the bytes of a page.
func (p Pages) size() int { return [...]int{Huge: 2 << 20, Small: smallPage}[p] }

const smallPage = 4096 // by which the kernel copies, also in a huge page

// ErrNoHugePages says that this system has no huge pages for files in memory. They come from a tmpfs, which root may mount with
// huge=always, or from /sys/kernel/mm/transparent_hugepage/shmem_enabled, where "advise" does. Reserved ones (hugetlbfs) are not
// used: there the kernel would copy 2 MiB for each page that is touched, and would need as many again for that.
var ErrNoHugePages = errors.New("az: no huge pages for files in memory")

// file makes a file in memory of n bytes.
func file(p Pages, n int) (fd int, err error) {
	if p == Huge {
		fd, err = hugeFile()
	}
	if p == Small || err != nil {
		fd, err = unix.MemfdCreate("az", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, fmt.Errorf("az: make a file in memory: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("az: a file of %d bytes: %w", n, err)
	}
	return fd, nil
}

// hugeFile makes a file on a tmpfs of its own, which no path leads to.
func hugeFile() (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "huge", "always"); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(mount)
	return unix.Openat(mount, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
}

// isHuge reports whether all of m, a mapping of its own, is mapped by huge pages.
func isHuge(m []byte) (bool, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return false, err
	}
	defer f.Close()
	begin := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(unsafe.SliceData(m))))
	found := false
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if !found {
			found = strings.HasPrefix(line, begin)
			continue
		}
		if rest, ok := strings.CutPrefix(line, "ShmemPmdMapped:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib<<10 == len(m), err
		}
	}
	return false, nil
}
