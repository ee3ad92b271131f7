package privatetree

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// static builds a program without libraries that ends at once, as little as a
// process can cost.
func static(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	src, file := filepath.Join(dir, "t.c"), filepath.Join(dir, "t")
	text := "void _start(void) { for (;;) __asm__ volatile(\"syscall\" :: \"a\"(231), \"D\"(0) : \"rcx\", \"r11\", \"memory\"); }\n"
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O2", "-static", "-nostdlib", "-o", file, src).CombinedOutput(); err != nil {
		b.Skipf("needs gcc for x86-64: %v: %s", err, out)
	}
	return file
}

func BenchmarkNew(b *testing.B) {
	files := toolchain(b, "gcc")
	newTree(b, Spec{Files: files}) // or skip
	b.ReportMetric(float64(len(files)), "files")
	for b.Loop() {
		tr, err := New(b.Context(), Spec{Files: files})
		if err != nil {
			b.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	file := static(b)
	fd := int(null(b).Fd())
	b.Run("tree", func(b *testing.B) {
		tr := newTree(b, Spec{Files: []string{file}})
		c := &Command{Argv: []string{file}, Env: os.Environ(), Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd, Limits: sandbox.Limits{File: 1 << 30}}
		for b.Loop() {
			r, err := tr.Start(c)
			if err != nil {
				b.Fatal(err)
			}
			if o, err := r.Wait(); err != nil || o.Exit != 0 {
				b.Fatal(o, err)
			}
		}
	})
	for name, kind := range confinedKinds(b) {
		b.Run("confined/"+name, func(b *testing.B) {
			s := kind(Spec{Files: []string{file}})
			for dir := filepath.Dir(file); len(dir) > len("/tmp"); dir = filepath.Dir(dir) {
				must(b, os.Chmod(dir, 0o755)) //nolint:gosec // for another user
			}
			tr := newTree(b, s)
			c := &Command{Argv: []string{file}, Env: os.Environ(), Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd,
				Limits: sandbox.Limits{File: 1 << 30, Memory: 8 << 30, JobMemory: 16 << 30, Processes: 64, CPU: time.Minute}}
			for b.Loop() {
				r, err := tr.Start(c)
				if err != nil {
					b.Fatal(err)
				}
				if o, err := r.Wait(); err != nil || o.Exit != 0 {
					b.Fatal(o, err)
				}
			}
		})
	}
	if MayMount() {
		b.Run("own user", func(b *testing.B) {
			tr := newTree(b, Spec{Files: []string{file}, UID: 65533, GID: 65533})
			c := &Command{Argv: []string{file}, Env: os.Environ(), Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd}
			for b.Loop() {
				r, err := tr.Start(c)
				if err != nil {
					b.Fatal(err)
				}
				if o, err := r.Wait(); err != nil || o.Exit != 0 {
					b.Fatal(o, err)
				}
			}
		})
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			pid, _, err := syscall.StartProcess(file, []string{file}, &syscall.ProcAttr{
				Dir: "/", Env: os.Environ(), Files: []uintptr{uintptr(fd), uintptr(fd), uintptr(fd)},
				Sys: &syscall.SysProcAttr{Setpgid: true},
			})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAnswer is one call that names a file, as seen from a command that makes nothing else.
func BenchmarkAnswer(b *testing.B) {
	dir := b.TempDir()
	must(b, os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // a directory of a toolchain
	text := "#include <unistd.h>\n#include <fcntl.h>\n#include <stdlib.h>\nint main(int c, char **v) { char b[4096]; for (int i = atoi(v[2]); i > 0; i--) { if (*v[1] == 'r') readlink(\"/usr/include/bits/types.h\", b, 4096); else close(open(*v[1] == 'a' ? \"/usr/include/none.h\" : \"/usr/include/bits/types.h\", O_RDONLY)); } }\n"
	must(b, os.WriteFile(dir+"/t.c", []byte(text), 0o600))
	file := dir + "/t"
	if out, err := exec.Command("gcc", "-O2", "-static", "-o", file, dir+"/t.c").CombinedOutput(); err != nil {
		b.Skipf("needs gcc and a static C library: %v: %s", err, out)
	}
	tr := newTree(b, Spec{Files: []string{file}, Confine: true, Bare: bareDir(b), Answered: true})
	must(b, tr.Write("/usr/include/bits/types.h", []byte("int x;"), when, false))
	for name, what := range map[string]string{"readlink": "r", "absent": "a", "open": "o"} {
		b.Run(name, func(b *testing.B) {
			before, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tr.proc.Pid))
			runIn(b, tr, "/", file, what, fmt.Sprint(b.N))
			after, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tr.proc.Pid))
			ticks := func(stat []byte) (n int) {
				f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
				for _, i := range []int{11, 12, 13, 14} {
					k, _ := strconv.Atoi(f[i])
					n += k
				}
				return n
			}
			b.ReportMetric(float64(ticks(after)-ticks(before))*1e4/float64(b.N), "cpu-us/op")
		})
	}
}

// cpuTime is this process's own so far: other work on the machine does not count.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFiles is one job of 200 headers of 4 KiB in 12 directories that alternate,
// without its compiler.
func BenchmarkFiles(b *testing.B) {
	const files, dirs = 200, 12
	names := make([]string, files)
	for i := range names {
		names[i] = fmt.Sprintf("/usr/include/c++/12/part%d/bits/header%d.h", i%dirs, i)
	}
	text := make([]byte, 4<<10)
	write := func(b *testing.B, tr *Tree) {
		for _, name := range names {
			if err := tr.Write(name, text, when, false); err != nil {
				b.Fatal(err)
			}
		}
	}
	clean := func(b *testing.B, tr *Tree) {
		if err := tr.Clean(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("write+clean", func(b *testing.B) {
		tr := newTree(b, Spec{Files: toolchain(b, "gcc")})
		var w, c time.Duration
		b.ReportAllocs()
		for b.Loop() {
			t0 := cpuTime(b)
			write(b, tr)
			t1 := cpuTime(b)
			clean(b, tr)
			w, c = w+t1-t0, c+cpuTime(b)-t1
		}
		b.ReportMetric(float64(w.Nanoseconds())/float64(b.N)/files, "write-cpu-ns/file")
		b.ReportMetric(float64(c.Microseconds())/float64(b.N), "clean-cpu-us/job")
	})
	b.Run("unexpected", func(b *testing.B) {
		tr := newTree(b, Spec{Files: toolchain(b, "gcc")})
		write(b, tr)
		b.ReportAllocs()
		for b.Loop() {
			if left, err := tr.Unexpected(anyTime); err != nil || len(left) != 0 {
				b.Fatal(left, err)
			}
		}
	})
	b.Run("clean-nothing", func(b *testing.B) {
		tr := newTree(b, Spec{Files: toolchain(b, "gcc")})
		for b.Loop() {
			clean(b, tr)
		}
	})
}
