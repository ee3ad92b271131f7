package probe

import (
	"encoding/binary"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// programs are attempts to run something other than the toolchain.
var programs = []Attempt{
	{Name: "exec-shell", Class: Exec, Do: func(*Targets) error { return becomes("/bin/sh", "sh", "-c", "exit 0") }},
	{Name: "exec-env", Class: Exec, Do: func(*Targets) error { return becomes("/usr/bin/env", "env", "--version") }},
	{Name: "exec-own-file", Class: Exec, Do: func(*Targets) error { return execOwn(".") }},
	{Name: "exec-own-file-in-tmpdir", Class: Exec, Do: func(*Targets) error { return execOwn(tempDir()) }},
	{Name: "exec-own-file-by-descriptor", Class: Exec, Do: execByDescriptor},
	{Name: "exec-own-script", Class: Exec, Do: execScript},
	{Name: "exec-memfd", Class: Exec, Do: execMemfd},
	{Name: "exec-shell-by-loader", Class: Exec, Do: func(*Targets) error { return byLoader("/bin/sh") }},
	{Name: "load-own-file", Class: Exec, Do: loadOwn},
}

// execute becomes another program. Its output must not get into the report: it goes into a pipe, which
// holds more than that.
func execute(path string, argv ...string) error {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(p[min(fd, 1)], fd, 0); err != nil {
			return err
		}
	}
	return unix.Exec(path, argv, nil)
}

// writeOwn makes an executable file.
func writeOwn(dir string, content []byte) (string, error) {
	name := filepath.Join(dir, scratch("own"))
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o700)
	if err != nil {
		return name, err
	}
	_, err = unix.Write(fd, content)
	unix.Close(fd)
	return name, err
}

// inChild runs in a child what ends in another program, and reports whether it got that far, so that the
// parent can tidy up.
func inChild(do func() error) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	pid, err := fork(0)
	if err != nil {
		return err
	}
	if pid == 0 {
		report(p[1], do())
	}
	unix.Close(p[1])
	answer, err := await(p[0], patience)
	status, _ := reap(pid)
	switch {
	case err != nil:
		return err
	case len(answer) == 4:
		return unix.Errno(binary.NativeEndian.Uint32(answer))
	case status.Signaled() || status.ExitStatus() == crashed:
		return unix.EACCES
	}
	return nil
}

// crashed is the status of a Go program that panicked because of a signal.
const crashed = 2

// becomes reports whether a program can be started.
func becomes(path string, argv ...string) error {
	return inChild(func() error { return execute(path, argv...) })
}

func execOwn(dir string) error {
	name, err := writeOwn(dir, smallest())
	defer func() { _ = unix.Unlink(name) }()
	if err != nil {
		return err
	}
	return becomes(name, name)
}

func execByDescriptor(*Targets) error {
	name, err := writeOwn(".", smallest())
	defer func() { _ = unix.Unlink(name) }()
	if err != nil {
		return err
	}
	return inChild(func() error {
		fd, err := unix.Open(name, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return execveat(fd)
	})
}

func execScript(*Targets) error {
	name, err := writeOwn(".", []byte("#!/bin/sh\nexit 0\n"))
	defer func() { _ = unix.Unlink(name) }()
	if err != nil {
		return err
	}
	return becomes(name, name)
}

// execMemfd runs a program that is not a file anywhere: neither noexec nor a list of programs sees it.
func execMemfd(*Targets) error {
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, smallest()); err != nil {
		return err
	}
	return inChild(func() error { return execveat(fd) })
}

func execveat(fd int) error {
	empty, _ := unix.BytePtrFromString("")
	argv := []*byte{empty, nil}
	_, _, no := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), pointer(empty), pointer(&argv[0]), pointer(&argv[1]), unix.AT_EMPTY_PATH, 0)
	return no
}

// byLoader makes the dynamic loader, which a compiler needs, start a program that is in no list.
func byLoader(program string) error {
	if err := opens(program, unix.O_RDONLY); err != nil {
		return err
	}
	return becomes(loader[runtime.GOARCH], "ld.so", "--verify", program)
}

// loader has the location of the dynamic loader in each architecture's ABI.
var loader = map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}

// loadOwn maps a file of its own as executable code, as a plugin is loaded.
func loadOwn(*Targets) error {
	name, err := writeOwn(".", smallest())
	defer func() { _ = unix.Unlink(name) }()
	if err != nil {
		return err
	}
	fd, err := unix.Open(name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	return err
}

// smallest returns a program that ends with status 0.
func smallest() []byte {
	const base, head, entry = 0x400000, 64, 56
	var machine uint16
	var code []byte
	switch runtime.GOARCH {
	case "amd64":
		machine, code = 62, []byte{0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05} // mov $60,%eax; xor %edi,%edi; syscall
	case "arm64":
		machine = 183
		for _, w := range []uint32{0xd2800ba8, 0xd2800000, 0xd4000001} { // mov x8,#93; mov x0,#0; svc #0
			code = binary.LittleEndian.AppendUint32(code, w)
		}
	}
	size := uint64(head + entry + len(code))
	le := binary.LittleEndian
	b := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, base+head+entry)
	b = le.AppendUint64(b, head)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{head, entry, 1, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	b = le.AppendUint32(b, 1) // PT_LOAD
	b = le.AppendUint32(b, 5) // readable, executable
	for _, v := range []uint64{0, base, base, size, size, 4096} {
		b = le.AppendUint64(b, v)
	}
	return append(b, code...)
}
