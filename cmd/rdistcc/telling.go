package main

import (
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// What a compile came to here may be kept, and what it has printed is part of that. So what it prints passes through this process,
// as it comes. The compiler finds the same as without: a terminal where there is one, and otherwise a pipe.

// ears are where what a command prints is listened to, and passed on.
type ears struct {
	all  []*ear
	fds  [3]int // the command's standard descriptors
	done chan struct{}
}

// ear is one of them.
type ear struct {
	fd       int // what is printed is read there; -1: not any more
	far      int // the command's end, until it has started
	to       int // -1: nowhere
	terminal bool
	said     []byte // its beginning
	n        int    // how much was printed, in bytes
	failed   bool   // not all of it could be passed on
}

// tells reports whether f is to tell the manager what comes of c, which is about to run here.
func (f *flow) tells(c command) bool {
	return f.told != ipc.TellNot && f.conn != nil && !f.divided && c.file == f.cc.file && canPrint(1) && canPrint(2)
}

// listenTo returns ears for two descriptors of this process, or nil. Two that lead to the same terminal share one, as what
// is printed there has an order.
func listenTo(out, err int) *ears {
	e := &ears{done: make(chan struct{})}
	if isTerminal(out) && isTerminal(err) && sameOpen(out, err) {
		if !e.add(err) {
			return nil
		}
		e.fds = [...]int{0, e.all[0].far, e.all[0].far}
		return e
	}
	if !e.add(out) || !e.add(err) {
		e.close()
		return nil
	}
	e.fds = [...]int{0, e.all[0].far, e.all[1].far}
	return e
}

// add adds an ear for a descriptor. It reports whether that was possible.
func (e *ears) add(to int) bool {
	x := &ear{to: to, terminal: isTerminal(to)}
	if x.terminal {
		var ok bool
		if x.fd, x.far, ok = terminalLike(to); !ok {
			return false
		}
	} else {
		var p [2]int
		if syscall.Pipe2(p[:], syscall.O_CLOEXEC) != nil {
			return false
		}
		x.fd, x.far = p[0], p[1]
	}
	e.all = append(e.all, x)
	return true
}

// addList adds an ear for what GNU's assembler reads, which it names in a file of its own, and returns the command with the word for
// that. The file is a pipe: nothing lies about, and no other process comes between. The ear is nil if that cannot be.
func (e *ears) addList(c command) (command, *ear) {
	const setFD = 2 // F_SETFD
	var p [2]int
	if syscall.Pipe2(p[:], syscall.O_CLOEXEC) != nil {
		return c, nil
	}
	name := "/proc/self/fd/" + strconv.Itoa(p[1])
	_, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(p[1]), setFD, 0) // it keeps its number in the command
	if errno != 0 || p[1] < 3 || syscall.Access(name, 2) != nil {
		syscall.Close(p[0])
		syscall.Close(p[1])
		return c, nil
	}
	x := &ear{fd: p[0], far: p[1], to: -1}
	e.all = append(e.all, x)
	c.more = "-Wa,--MD," + name
	return c, x
}

// close closes everything that is open.
func (e *ears) close() {
	for _, x := range e.all {
		x.hangUp()
		if x.far >= 0 {
			syscall.Close(x.far)
			x.far = -1
		}
	}
}

func (x *ear) hangUp() {
	if x.fd >= 0 {
		syscall.Close(x.fd)
		x.fd = -1
	}
}

// begin passes on what is printed, until no process can print any more.
func (e *ears) begin() {
	for _, x := range e.all {
		syscall.Close(x.far)
		x.far = -1
	}
	go func() {
		defer close(e.done)
		buf := make([]byte, 32<<10)
		for {
			var open []*ear
			var wait []pollFD
			for _, x := range e.all {
				if x.fd >= 0 {
					open, wait = append(open, x), append(wait, pollFD{fd: int32(x.fd), events: pollIn})
				}
			}
			if len(open) == 0 {
				return
			}
			poll(wait, -1)
			for i, x := range open {
				if wait[i].revents != 0 {
					x.pass(buf)
				}
			}
		}
	}()
}

// pass passes on what can be read.
func (x *ear) pass(buf []byte) {
	n, err := syscall.Read(x.fd, buf)
	if err == syscall.EINTR {
		return
	}
	if err != nil || n <= 0 { // EIO: the last process has closed its end of a terminal
		x.hangUp()
		return
	}
	x.n += n
	if len(x.said) <= ipc.MaxWordsHere {
		x.said = append(x.said, buf[:n]...)
	}
	if x.to >= 0 && write(x.to, string(buf[:n])) != 0 {
		x.failed = true
		x.hangUp() // the command meets the same
	}
}

// runTelling runs c, passes on what it prints, and tells the manager what has come of it.
func (f *flow) runTelling(c command, e *ears) int {
	var list *ear
	if f.told == ipc.TellReads {
		c, list = e.addList(c)
	}
	code := f.runWith(c, e.fds, e.begin)
	select {
	case <-e.done:
	case <-time.After(killedWithin): // a process that was left behind may still print, but must not hold us up
		return code
	}
	if code != 0 || f.rec.local == 0 || f.in.caught() != 0 || f.conn == nil {
		return code
	}
	ran := ipc.Ran{CPUUS: micros(f.rec.cpu), WallUS: micros(f.rec.local)}
	for _, x := range e.all {
		switch {
		case x.failed, x.n > 0 && (x.to == 1 || x.terminal), x.n > ipc.MaxWordsHere:
			return code
		case x == list:
			ran.Reads = x.said
		case x.n > 0:
			ran.Words = x.said
		}
	}
	if f.conn.Send(ran.Append(nil)) != nil {
		f.hangUp()
		return code
	}
	if kind, _, err := f.conn.Recv(); err != nil || kind != ipc.KindGo {
		f.hangUp() // the result stands, whatever has become of the manager
	}
	return code
}

// terminalLike makes a terminal of the size of one of ours. It returns this process's end, and that for a command.
func terminalLike(like int) (near, far int, ok bool) {
	const setLock, openPeer, noOutput = 0x40045431, 0x5441, 1 // TIOCSPTLCK, TIOCGPTPEER, OPOST
	ioctl := func(fd, what int, arg uintptr) (int, bool) {
		r, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), uintptr(what), arg)
		return int(r), errno == 0
	}
	near, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, false
	}
	var unlock int32
	if _, ok = ioctl(near, setLock, uintptr(unsafe.Pointer(&unlock))); ok {
		far, ok = ioctl(near, openPeer, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
	}
	if !ok {
		syscall.Close(near)
		return -1, -1, false
	}
	var size [4]uint16 // struct winsize
	if _, known := ioctl(like, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size))); known {
		ioctl(near, syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size)))
	}
	var as syscall.Termios
	if _, ok = ioctl(like, syscall.TCGETS, uintptr(unsafe.Pointer(&as))); ok {
		as.Oflag &^= noOutput // the real one does that
		_, ok = ioctl(far, syscall.TCSETS, uintptr(unsafe.Pointer(&as)))
	}
	if !ok {
		syscall.Close(near)
		syscall.Close(far)
	}
	return near, far, ok
}
