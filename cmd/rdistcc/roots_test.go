package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestShown: files of a command's root cannot be shown where hosts show their own.
func TestShown(t *testing.T) {
	f := &flow{rec: record{compiler: "/opt/llvm/bin/clang-19"}}
	for dir, want := range map[string]bool{
		"/": true, "/usr": true, "/usr/lib": true, "/usr/lib/gcc": true, "/usr/lib/gcc/x86_64-linux-gnu/12": true, "/opt": true,
		"/opt/rh/devtoolset-9/root": true, "/opt/llvm": true, "/opt/llvm/lib/gcc/x": true,
		"/usr/lib/gccs": false, "/usr/x86_64-linux-musl": false, "/opt/llvm/sysroot": false, "/home/u/root": false, "/us": false,
	} {
		if got := f.shown(dir); got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
}

func TestPlainTarget(t *testing.T) {
	for target, want := range map[string]bool{
		"x86_64-pc-linux-gnu": true, "i386-pc-linux-gnu": true, "aarch64-unknown-linux-android21": true, "armv7-unknown-linux-gnueabihf": true,
		"mips64el-unknown-linux-gnuabi64": false, "x86_64-apple-darwin20": false, "arm-none-eabi": false, "x86_64": false, "": false,
	} {
		if got := plainTarget(target); got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
	}
}

// TestBelow: of what is below a root, the library directories and the files by which clang recognizes a gcc
// are listed, including those of its variants.
func TestBelow(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"lib/x86_64-linux-gnu", "lib/modules", "lib/gcc/x86_64-linux-gnu/12/32", "lib/gcc/x86_64-linux-gnu/12/include/sub"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/lib/x-linux-file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var b below
	b.libraries(root)
	b.installation(root+"/lib/gcc/x86_64-linux-gnu/12", variants)
	if want := []string{root + "/lib", root + "/lib/x86_64-linux-gnu"}; !slices.Equal(b.dirs, want) {
		t.Errorf("directories are %q, want %q", b.dirs, want)
	}
	want := []string{"/lib/crtfastmath.o", "/lib/x86_64-linux-gnu/crtfastmath.o", "/lib/gcc/x86_64-linux-gnu/12/crtbegin.o", "/lib/gcc/x86_64-linux-gnu/12/crtfastmath.o",
		"/lib/gcc/x86_64-linux-gnu/12/32/crtbegin.o", "/lib/gcc/x86_64-linux-gnu/12/32/crtfastmath.o"}
	for i := range want {
		want[i] = root + want[i]
	}
	if !slices.Equal(b.files, want) {
		t.Errorf("files are %q, want %q", b.files, want)
	}
}
