package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/test/suite/attacks/corpus"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// hostileVar turns this program into the hostile client of S7: its task, as JSON.
const hostileVar = "RDISTCC_BENCH_HOSTILE"

// hostile is one client, in a process of its own.
type hostile struct {
	Kind      string
	Addr      string
	Auth      identity.Settings
	Toolchain unit.ToolchainID // compiler for the flood
	Text      string           // the flood's source
	GCC, GXX  unit.ToolchainID // compilers for the corpus
	FIFO      string           // without a writer

	id  *identity.Identity
	dev iwarp.Device
}

// Kinds of hostile clients, in the order of the table.
const (
	hostileFlood   = "flood"
	hostileDoS     = "dos"
	hostileSilent  = "silent"  // proves nothing
	hostileHoarder = "hoarder" // uses and returns no credits
	hostileFiller  = "filler"  // the same, with its slots full
)

// hostileConns is how many connections it has at a time: fewer than one client may have (half of
// limits.clients, 256), more than may be unproven.
const hostileConns = 100

// beHostile runs the process, until it is killed.
func beHostile(text string) error {
	h := &hostile{}
	if err := json.Unmarshal([]byte(text), h); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if h.id, err = identity.New(identity.Client, h.Auth); err != nil {
		return err
	}
	if h.dev, err = iwarp.Open(iwarp.Config{Dial: h.id.Dial}); err != nil {
		return err
	}
	do := map[string]func(ctx context.Context, n int) error{
		hostileFlood: h.flood, hostileDoS: h.exhaust, hostileSilent: h.silent, hostileHoarder: h.hoard, hostileFiller: h.hoard,
	}[h.Kind]
	if do == nil {
		return fmt.Errorf("no hostile client is a %q", h.Kind)
	}
	conns := hostileConns
	if h.Kind == hostileDoS {
		conns = 16
	}
	var all sync.WaitGroup
	for n := range conns {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = do(ctx, n) // whatever happened: once more
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	all.Wait()
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (h *hostile) dial(ctx context.Context, o rawjob.Options) (*rawjob.Client, error) {
	o.Key = h.id.Key()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return rawjob.DialWith(ctx, h.dev, h.Addr, o)
}

// compile returns a job of the text form.
func compile(tc unit.ToolchainID, lang, name, text string, args ...string) *rawjob.Job {
	return &rawjob.Job{Toolchain: tc, Text: []byte(text), Sink: 1 << 20, Body: &job.Body{
		Argv0: "gcc", Language: lang, Name: name, Cwd: "/src", Args: args, Outputs: []unit.Output{{Name: "out.o"}},
	}}
}

// flood sends job after job; every second connection sends jobs for a compiler that the host does not have,
// which it refuses at once.
func (h *hostile) flood(ctx context.Context, n int) error {
	c, err := h.dial(ctx, rawjob.Options{Want: 8, Demand: 65535})
	if err != nil {
		return err
	}
	defer c.Close()
	j := compile(h.Toolchain, "cpp-output", "flood.i", h.Text)
	if n%2 == 1 {
		j.Toolchain[0]++
	}
	for {
		if _, err := c.Run(ctx, j); err != nil {
			return err
		}
	}
}

// exhaust sends the jobs of the corpus that try to exhaust the machine.
func (h *hostile) exhaust(ctx context.Context, n int) error {
	c, err := h.dial(ctx, rawjob.Options{Want: 1, Demand: 65535})
	if err != nil {
		return err
	}
	defer c.Close()
	jobs, err := h.corpus()
	if err != nil {
		return err
	}
	for {
		if _, err := c.Run(ctx, jobs[rand.IntN(len(jobs))]); err != nil {
			return err
		}
	}
}

// hoard has some jobs done, so that it is given many credits, and keeps what it has from then on.
func (h *hostile) hoard(ctx context.Context, n int) error {
	c, err := h.dial(ctx, rawjob.Options{Want: 8, Demand: 65535, Keep: true})
	if err != nil {
		return err
	}
	defer c.Close()
	if n < hostileConns/5 {
		if _, err := c.Run(ctx, compile(h.Toolchain, "cpp-output", "hoard.i", h.Text)); err != nil {
			return err
		}
	}
	if h.Kind == hostileFiller {
		if err := c.Fill(ctx); err != nil {
			return err
		}
	}
	for {
		pause(ctx, 100*time.Millisecond)
		if err := c.Echo(ctx); err != nil {
			return err
		}
	}
}

// silent connects from another address of this machine, sends what is needed for the daemon to listen, and
// then nothing.
func (h *hostile) silent(ctx context.Context, n int) error {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	if h.id.Mode() == identity.TLS {
		c, err := from.DialContext(ctx, "tcp", h.Addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if n%2 == 1 {
			// The head of a record with a ClientHello that never arrives.
			if _, err := c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc}); err != nil {
				return err
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err = c.Read(make([]byte, 1))
		return err
	}
	return unproven(ctx, from, h.Addr, h.id.Key())
}

// unproven makes a connection up to the daemon's Reply, and waits until it is ended.
func unproven(ctx context.Context, from *net.Dialer, addr string, k *psk.Key) error {
	dev, err := iwarp.Open(iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) { return from.DialContext(ctx, "tcp", addr) }})
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 2, MaxRecv: 2})
	if err != nil {
		return err
	}
	defer func() { _ = qp.Destroy() }() // dev.Close ends it in any case
	g := job.Greeting{Version: job.Version}
	if _, err := dev.Dial(ctx, addr, qp, &iwarp.ConnParam{PrivateData: k.Dial(g.Append(nil), dev.Attr().StartUp).PrivateData()}); err != nil {
		return err
	}
	select {
	case <-qp.Done():
	case <-ctx.Done():
	}
	return qp.Err()
}

var (
	repeatedPart = regexp.MustCompile(`%(\d+)\|([^|]*)\|`)
	repeatedLine = regexp.MustCompile(`(?m)^%(\d+)% ?(.*)$`)
)

// repeated expands the repetitions of a text of the corpus.
func repeated(s string) string {
	s = repeatedLine.ReplaceAllStringFunc(s, func(m string) string {
		f := repeatedLine.FindStringSubmatch(m)
		n, _ := strconv.Atoi(f[1])
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(f[2], "%i", strconv.Itoa(i)) + "\n")
		}
		return b.String()
	})
	return repeatedPart.ReplaceAllStringFunc(s, func(m string) string {
		f := repeatedPart.FindStringSubmatch(m)
		n, _ := strconv.Atoi(f[1])
		return strings.Repeat(strings.ReplaceAll(f[2], `\0`, "\x00"), n)
	})
}

// corpus returns the plain jobs of the class dos, for gcc or g++: those that are a source with words. The
// others concern single bytes of a message.
func (h *hostile) corpus() (jobs []*rawjob.Job, err error) {
	text, err := corpus.Texts.ReadFile("dos.txt")
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq("\n"+string(text), "\n= ") {
		head, rest, _ := strings.Cut(entry, "\n")
		f := strings.Fields(head)
		if len(f) != 5 || f[1] != "dos" || strings.HasPrefix(f[3], "clang") {
			continue
		}
		tc, lang, name := h.GCC, "cpp-output", "in.c"
		if strings.HasPrefix(f[3], "g++") {
			tc, lang, name = h.GXX, "c++-cpp-output", "in.cc"
		}
		var args []string
		var source strings.Builder
		plain := true
		for line := range strings.SplitSeq(rest, "\n") {
			if tabbed, ok := strings.CutPrefix(line, "\t"); ok {
				source.WriteString(tabbed + "\n")
				continue
			}
			word, value, _ := strings.Cut(line, " ")
			switch word {
			case "args":
				if args == nil || f[3] != "*" {
					args = strings.Fields(repeated(value))
				}
			case "name":
				name = value
			case "", "#", "source", "on", "leak", "oracle":
			default:
				plain = false
			}
		}
		if plain {
			jobs = append(jobs, compile(tc, lang, name, strings.ReplaceAll(repeated(source.String()), "{FIFO}", h.FIFO), args...))
		}
	}
	if len(jobs) < 30 {
		return nil, errors.New("the corpus has too few jobs that want the machine")
	}
	return jobs, nil
}
