package toolchain

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestThreadsEnd: a compiler that is asked outlives the thread that has started it. Threads of a manager end where it watches
// what a compiler reads.
func TestThreadsEnd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // starting a program, a goroutine loses its turn, and goes on elsewhere
	over := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			go runtime.LockOSThread() // the thread ends with it
			for began := time.Now(); time.Since(began) < time.Millisecond; {
			}
		}
	})
	defer others.Wait()
	defer close(over)
	var asked sync.WaitGroup
	for range 8 {
		asked.Go(func() {
			for range 5 {
				if _, err := newFinding(t.Context(), time.Minute, "", Env{}).run("/bin/sh", "-c", "sleep 0.1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	asked.Wait()
}
