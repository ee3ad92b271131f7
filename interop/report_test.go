package interop

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestMain prints the table and stops the guest.
func TestMain(m *testing.M) {
	code := m.Run()
	if g := shared.guest; g != nil {
		g.stop()
	}
	if os.Getenv("RDISTCC_INTEROP") != "" {
		switch {
		case shared.err != nil:
			fmt.Printf("interop: NOT RUN, the guest does not boot here: %v\n", shared.err)
		case code == 0 && skipped > 0:
			fmt.Printf("interop: all %d rows as expected; no time for %d more\n", rows, skipped)
		case code == 0:
			fmt.Printf("interop: all %d rows as expected\n", rows)
		default:
			fmt.Println("interop: FAILED")
		}
	}
	os.Exit(code)
}

var rows int

// row is one line of the table: what was run against what. Its result is that of the test, reported when
// the test ends; note, if set by then, is what was measured.
func row(t *testing.T, peer, what string) (note *string) {
	t.Helper()
	begin := time.Now()
	note = new(string)
	t.Cleanup(func() {
		result := "ok"
		switch {
		case t.Failed():
			result = "FAILED"
		case t.Skipped():
			result = "skipped"
		}
		rows++
		fmt.Printf("%-7s | %-28s | %-62s | %5.1f s | %s\n", result, peer, what, time.Since(begin).Seconds(), *note)
	})
	return note
}
