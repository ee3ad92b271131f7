package farm

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// TestBuildsTakeTurns: a build that came later does not stand behind all of a
// large one.
func TestBuildsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSimulated(t, nil)
		turn := make(chan struct{})
		var began []string
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.Jobs = 2
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				began = append(began, string(j.Text))
				<-turn
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		hosts := list(d.Addr)
		s.f.Want(hosts, nil)
		synctest.Wait()
		var wg sync.WaitGroup
		for _, text := range []string{"a1", "a2", "a3", "a4", "a5", "b1", "b2"} {
			wg.Go(func() { s.run(hosts, uint64(text[0]), text) })
			synctest.Wait() // it waits for the host, or runs there
		}
		for range 7 {
			turn <- struct{}{}
			synctest.Wait()
		}
		wg.Wait()
		if len(began) != 7 || began[2] != "b1" {
			t.Errorf("order %q, want b1 when the first of the others has ended", began)
		}
	})
}
