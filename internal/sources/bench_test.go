package sources

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// memfd is a slot for tests.
func memfd(t testing.TB, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("slot", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// BenchmarkMake packs what a C++ source with the usual headers reads, into a slot whose
// memory is warm.
func BenchmarkMake(b *testing.B) {
	cc, err := exec.LookPath("g++")
	if err != nil {
		b.Skip("g++ is not installed")
	}
	dir := b.TempDir()
	src := filepath.Join(dir, "x.cc")
	text := "#include <iostream>\n#include <regex>\n#include <map>\n#include <algorithm>\n#include <thread>\n"
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		b.Fatal(err)
	}
	rule, err := exec.Command(cc, "-M", src).Output()
	if err != nil {
		b.Fatal(err)
	}
	const size = 32 << 20
	fd := memfd(b, size)
	own := []string{"/usr/include/c++/12", "/usr/include/x86_64-linux-gnu/c++/12", "/usr/include/c++/12/backward", "/usr/lib/gcc/x86_64-linux-gnu/12/include", "/usr/local/include", "/usr/include/x86_64-linux-gnu", "/usr/include"}
	n := 0
	for b.Loop() {
		names, err := ParseRule(rule)
		if err != nil {
			b.Fatal(err)
		}
		p, err := Make(&Options{FD: fd, Off: 64 << 10, Max: size, Names: names, Own: func() []string { return own }, Since: syscall.Timespec{Sec: 1 << 40}})
		if err != nil {
			b.Fatal(err)
		}
		n = len(p.Files)
		b.SetBytes(int64(p.Len))
	}
	b.ReportMetric(float64(n), "files")
}

// BenchmarkScan looks through a large header of the C++ library.
func BenchmarkScan(b *testing.B) {
	text, err := os.ReadFile("/usr/include/c++/12/bits/stl_algo.h")
	if err != nil {
		b.Skip(err)
	}
	p := &pack{o: &Options{Own: func() []string { return []string{"/usr/include"} }}, names: map[string]struct{}{}, asked: map[string]struct{}{}}
	p.finder.init()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := p.scan("x.h", "x.h", text); err != nil {
			b.Fatal(err)
		}
	}
}
