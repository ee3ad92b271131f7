package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStep watches a step of half a minute.
func TestStep(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		want     string
	}{
		{"plain", false, "  here alone    1 of 3 after 10 s\n  here alone    2 of 3 after 20 s\n"},
		{"terminal", true, "  here alone    2 of 3 after 25 s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				s := screen{&out, c.terminal}.begin("here alone", 3)
				for range 3 {
					time.Sleep(8500 * time.Millisecond)
					s.add()
				}
				if took := s.end(); took != 25500*time.Millisecond {
					t.Errorf("took %v, want 25.5s", took)
				}
				if !c.terminal {
					if out.String() != c.want {
						t.Errorf("got\n%swant\n%s", &out, c.want)
					}
					return
				}
				// One line, rewritten 5 times a second, and removed.
				frames := strings.Split(out.String(), "\r")
				last := len(frames) - 1
				if strings.Contains(out.String(), "\n") || len(frames) < 100 || frames[last] != "\x1b[K" || frames[last-1] != c.want+"\x1b[K" {
					t.Errorf("%d frames, the last ones %q, want %q and nothing", len(frames), frames[max(0, last-1):], c.want)
				}
			})
		})
	}
}

// TestQuickStep says nothing in a log, nor leaves anything on a terminal.
func TestQuickStep(t *testing.T) {
	for terminal, want := range map[bool]string{false: "", true: "\r\x1b[K"} {
		var out bytes.Buffer
		screen{&out, terminal}.begin("here alone", 1).end()
		if out.String() != want {
			t.Errorf("terminal %v: %q, want %q", terminal, &out, want)
		}
	}
}

func TestScreenOfAFile(t *testing.T) {
	f, err := os.Open(os.DevNull) // a character device, and no terminal
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if newScreen(f).terminal {
		t.Error("/dev/null passes for a terminal")
	}
}
