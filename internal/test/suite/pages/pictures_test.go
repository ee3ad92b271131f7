package pages

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/browser"
	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

var screenshots = flag.String("screenshots", "", "directory for pictures of the pages and of rdistcc top, which take some minutes; empty: none are made")

// redis compiles redis with this machine's gcc until stop is closed: all of it, until built is closed, then what is left to do after a header
// was edited and all objects were removed, by turns a header that few read and one that most do.
func (s *shell) redis(stop <-chan struct{}) (built <-chan struct{}, wait func()) {
	s.Helper()
	for _, program := range []string{"gcc", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			need.Skipf(s.T, need.Tools, "no %s", program)
		}
	}
	archives, err := debsrc.New("")
	if err != nil {
		s.Fatal(err)
	}
	dir := filepath.Join(s.Dir, "redis")
	if err := archives.Unpack(s.ctx, "redis", dir); err != nil {
		s.Fatal(err)
	}
	build := func() {
		cmd := exec.CommandContext(s.ctx, "make", "-k", "-j12", "MALLOC=libc", "CC="+s.Wrapper+" gcc", "redis-server")
		cmd.Env, cmd.Dir, cmd.SysProcAttr = s.Env(), filepath.Join(dir, "src"), &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			s.Error(err)
			return
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // it is stopped in the middle
			close(ended)
		}()
		select {
		case <-ended:
		case <-stop:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
			<-ended
		}
	}
	first, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			build()
			if i == 0 {
				close(first)
			}
			objects, _ := filepath.Glob(filepath.Join(dir, "src", "*.o")) // the pattern is right
			for _, o := range objects {
				_ = os.Remove(o)
			}
			f, err := os.OpenFile(filepath.Join(dir, "src", []string{"cluster.h", "server.h"}[i%2]), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				s.Error(err)
				return
			}
			fmt.Fprintf(f, "/* edit %d */\n", i)
			_ = f.Close()
		}
	}()
	return first, func() { <-done }
}

// terminals has `rdistcc top` run in terminals of some sizes, by tmux. The function that it returns writes what they show to files.
func (s *shell) terminals(sizes ...string) (capture func(dir string)) {
	s.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		need.Skipf(s.T, need.Tools, "no tmux")
	}
	tmux := func(words ...string) string {
		cmd := exec.CommandContext(s.ctx, "tmux", append([]string{"-u", "-L", fmt.Sprint("rdistcc-", os.Getpid()), "-f", os.DevNull}, words...)...)
		cmd.Env = append(s.Env(), "TMUX=", "LC_ALL=C.UTF-8")
		out, err := cmd.Output()
		if err != nil {
			s.Errorf("tmux %q: %v", words, err)
		}
		return string(out)
	}
	for _, size := range sizes {
		width, height, _ := strings.Cut(size, "x")
		tmux("new-session", "-d", "-s", size, "-x", width, "-y", height, s.Wrapper+" top")
	}
	s.Cleanup(func() { tmux("kill-server") })
	return func(dir string) {
		for _, size := range sizes {
			text := ""
			for _, key := range []string{"1", "2", "3"} {
				tmux("send-keys", "-t", size, key)
				time.Sleep(1500 * time.Millisecond)
				text += tmux("capture-pane", "-p", "-t", size) + "\n"
			}
			if err := os.WriteFile(filepath.Join(dir, "top-"+size+".txt"), []byte(text), 0o644); err != nil {
				s.Error(err)
			}
		}
	}
}

// TestScreenshots makes the pictures of the pages and of rdistcc top in the documents, if it is told to: of a manager and three daemons that
// compile redis.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("-screenshots names no directory")
	}
	b := browser.Start(t)
	s := watchedWith(t, []string{"/usr/bin"}, 4, 3, 2)
	capture := s.terminals("80x24", "140x40", "20x10")
	stop := make(chan struct{})
	built, wait := s.redis(stop)
	defer wait()
	defer close(stop)
	select {
	case <-built:
	case <-s.ctx.Done():
		t.Fatal("redis was not built in time")
	}
	time.Sleep(45 * time.Second) // so that there is something to show of the cache, too
	capture(*screenshots)
	for _, x := range []struct{ name, url string }{{"manager", s.Manager.HTTP}, {"daemon", s.Daemons[0].HTTP}} {
		for width, dark := range map[int]bool{1400: x.name == "daemon", 500: true} {
			height := map[int]int{1400: 1150, 500: 1400}[width]
			p := b.Open("http://"+x.url+"/", browser.Look{Width: width, Height: height, Dark: dark})
			p.WaitFor("the page is live", `document.querySelector('#feed').textContent === 'live'`)
			time.Sleep(20 * time.Second) // for what only a page that is open notes
			p.WaitFor("compiles under way", `[...document.querySelectorAll('*')].filter(e => !e.children.length && /^[2-9] of \d+$/.test(e.textContent)).length > 1`)
			var wide int
			if p.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
				t.Errorf("%s is %d pixels wide on %d", x.name, wide, width)
			}
			name := fmt.Sprintf("live-%s-%d-%s.png", x.name, width, map[bool]string{false: "light", true: "dark"}[dark])
			if err := os.WriteFile(filepath.Join(*screenshots, name), p.Screenshot(width, height), 0o644); err != nil {
				t.Error(err)
			}
			p.Close()
		}
	}
}
