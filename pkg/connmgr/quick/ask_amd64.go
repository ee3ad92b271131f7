//go:build !race

package quick

import (
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// head is a Whole up to its Words, with their length; middle is the length of its Environ.
var (
	head    [4 + 1 + 1 + 1 + 8*8 + 4]byte
	nHead   int
	middle  [4]byte
	vectors [4]syscall.Iovec
	message syscall.Msghdr
)

func put8(n uint8) {
	if nHead < len(head) {
		head[nHead] = n
		nHead++
	}
}

func put32(n int) {
	for shift := 0; shift < 32; shift += 8 {
		put8(uint8(n >> shift))
	}
}

func put64(n uint64) {
	for shift := 0; shift < 64; shift += 8 {
		put8(uint8(n >> shift))
	}
}

// ask sends the Whole.
func ask() bool {
	put32(len(head) - 4 + started.nWords + 4 + started.nEnviron)
	put8(uint8(ipc.KindWhole))
	put8(ipc.Version)
	terminal := uint8(0)
	if system(syscall.SYS_IOCTL, 2, syscall.TCGETS, uintptr(unsafe.Pointer(&left.in)), 0, 0) == 0 { // where nothing is yet
		terminal = 1
	}
	put8(terminal)
	if !look(unsafe.Pointer(&exe)) {
		return false
	}
	put64(st.Dev)
	put64(st.Ino)
	if !look(unsafe.Pointer(&mounts)) {
		return false
	}
	put64(st.Ino)
	for i := 0; i < 2; i++ {
		dir := unsafe.Pointer(&root)
		if i == 1 {
			dir = unsafe.Pointer(&cwd)
		}
		if !look(dir) {
			return false
		}
		put64(st.Dev)
		put64(st.Ino)
	}
	if !rights() {
		return false
	}
	put32(started.nWords)
	for i := 0; i < 4; i++ {
		middle[i] = uint8(started.nEnviron >> (8 * i))
	}
	set(0, unsafe.Pointer(&head), len(head))
	set(1, started.words, started.nWords)
	set(2, unsafe.Pointer(&middle), len(middle))
	set(3, started.environ, started.nEnviron)
	message.Iov, message.Iovlen = &vectors[0], 4
	all := len(head) + started.nWords + len(middle) + started.nEnviron
	return nHead == len(head) && system(syscall.SYS_SENDMSG, uintptr(left.fd), uintptr(unsafe.Pointer(&message)), syscall.MSG_NOSIGNAL, 0, 0) == all
}

func set(i int, p unsafe.Pointer, n int) {
	vectors[i&3].Base, vectors[i&3].Len = (*byte)(p), uint64(n)
}

func look(name unsafe.Pointer) bool {
	return system(syscall.SYS_STAT, uintptr(name), uintptr(unsafe.Pointer(&st)), 0, 0, 0) == 0
}

// What the kernel is asked for rights.
var (
	capsOf = struct {
		version uint32
		pid     int32
	}{version: 0x20080522} // _LINUX_CAPABILITY_VERSION_3
	caps   [2]struct{ effective, permitted, inheritable uint32 }
	groups [64]uint32
)

// rights puts the last field of an ipc.View, as ipc.Look does.
func rights() bool {
	n := system(syscall.SYS_GETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups)), 0, 0, 0)
	if n < 0 || n > len(groups) || system(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&capsOf)), uintptr(unsafe.Pointer(&caps)), 0, 0, 0) != 0 {
		return false
	}
	for i := 1; i < n; i++ {
		for j := i; j > 0 && j < len(groups) && groups[j] < groups[j-1]; j-- {
			groups[j], groups[j-1] = groups[j-1], groups[j]
		}
	}
	sum := uint64(14695981039346656037)
	sum = mix(sum, uint64(started.euid))
	sum = mix(sum, uint64(system(syscall.SYS_GETEGID, 0, 0, 0, 0, 0)))
	sum = mix(sum, uint64(caps[0].effective))
	sum = mix(sum, uint64(caps[1].effective))
	sum = mix(sum, 0)
	for i := 0; i < n && i < len(groups); i++ {
		sum = mix(sum, uint64(groups[i]))
	}
	put64(sum)
	return true
}

func mix(sum, n uint64) uint64 { return (sum ^ n) * 1099511628211 }

// receive waits for the answer. If that is a Place, its files are in their places, and nothing more is to be done, it ends the
// process. Otherwise it reports whether there is an answer.
func receive() bool {
	for {
		if !more() {
			return false
		}
		for left.to-left.from >= ipc.HeaderLen {
			frame := 4 + int(u32(left.from))
			switch ipc.Kind(left.in[left.from+4]) {
			case ipc.KindWait:
				left.from += ipc.HeaderLen
				continue
			case ipc.KindPlace:
				end := left.from + frame
				if frame < ipc.HeaderLen || end > len(left.in) {
					return true
				}
				if end <= left.to {
					if !started.records && left.n == 1 && place(left.from+ipc.HeaderLen, end) && report() {
						finish()
					}
					return true
				}
			default:
				return true
			}
			break
		}
	}
}

// control is where descriptors are received: a cmsghdr, and some.
var control [8]uint64

// more receives more bytes, and descriptors.
func more() bool {
	if left.from == left.to {
		left.from, left.to = 0, 0
	}
	if left.to >= len(left.in) {
		return false
	}
	for {
		set(0, unsafe.Add(unsafe.Pointer(&left.in), left.to), len(left.in)-left.to)
		message.Iovlen = 1
		message.Control, message.Controllen = (*byte)(unsafe.Pointer(&control)), uint64(unsafe.Sizeof(control))
		n := system(syscall.SYS_RECVMSG, uintptr(left.fd), uintptr(unsafe.Pointer(&message)), syscall.MSG_CMSG_CLOEXEC, 0, 0)
		if n == -int(syscall.EINTR) {
			continue
		}
		if n <= 0 || n > len(left.in)-left.to {
			return false
		}
		left.to += n
		break
	}
	h := (*syscall.Cmsghdr)(unsafe.Pointer(&control))
	if message.Controllen < syscall.SizeofCmsghdr || h.Level != syscall.SOL_SOCKET || h.Type != syscall.SCM_RIGHTS {
		return true
	}
	for i := 0; syscall.SizeofCmsghdr+4*(i+1) <= int(h.Len) && syscall.SizeofCmsghdr+4*(i+1) <= int(unsafe.Sizeof(control)); i++ {
		fd := *(*int32)(unsafe.Add(unsafe.Pointer(&control), syscall.SizeofCmsghdr+4*i))
		if left.n >= len(left.fds) {
			return false
		}
		left.fds[left.n] = fd
		left.n++
	}
	return true
}

// u32 returns the number at in[i:], which has four bytes.
func u32(i int) uint32 {
	if i < 0 || i > len(left.in)-4 {
		return 0
	}
	return uint32(left.in[i]) | uint32(left.in[i+1])<<8 | uint32(left.in[i+2])<<16 | uint32(left.in[i+3])<<24
}
