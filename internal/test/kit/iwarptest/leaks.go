package iwarptest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Main runs a package's tests and fails them if a goroutine of the stack, or a descriptor, is
// left when all have ended. Call it from TestMain.
func Main(m *testing.M) {
	files := descriptors()
	code := m.Run()
	if code == 0 {
		if left := leaks(files); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "FAIL: left behind by the tests:\n%s\n", strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// leaks waits for goroutines and descriptors that are about to go, and returns those that stay.
func leaks(before map[string]bool) []string {
	var left []string
	for range 200 {
		left = left[:0]
		for _, s := range stacks() {
			left = append(left, s)
		}
		for f := range descriptors() {
			if !before[f] && !strings.Contains(f, "anon_inode:[event") { // the runtime's poller
				left = append(left, "descriptor "+f)
			}
		}
		if len(left) == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}

// descriptors returns the open descriptors, by number and file.
func descriptors() map[string]bool {
	m := make(map[string]bool)
	entries, _ := os.ReadDir("/proc/self/fd") // nothing is known on systems other than Linux
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			m[e.Name()+" -> "+to] = true
		}
	}
	return m
}
