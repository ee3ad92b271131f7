package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// settle is the time that daemons get to finish after they have answered.
const settle = 30 * time.Millisecond

// side is one way to run the same compile.
type side struct {
	name    string
	run     *runner
	env     []string
	argv    []string
	unit    func(round int) string // replaces anyUnit in argv; nil: argv has none
	host    *group                 // the daemon and its compilers; nil: none
	manager *daemon                // nil: none

	wall, cpu, client, mgr, far []float64 // milliseconds, one entry per round
}

// compiles measures P1, P2 and P4: an empty C file by the plain compiler, by rdistcc with a warm manager
// and by distcc, in turns; and the same file preprocessed by the plain compiler, which is the minimum that
// a daemon needs. rdistcc takes part three times: without a sandbox, as distccd is; with it; and with TLS
// as well.
func (b *bench) compiles() error {
	if err := os.WriteFile(filepath.Join(b.tmp, "empty.c"), nil, 0o644); err != nil {
		return err
	}
	cpp := exec.CommandContext(b.ctx, b.gcc, "-E", "empty.c", "-o", "text.i")
	cpp.Dir = b.tmp
	if out, err := cpp.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc -E: %w: %s", err, out)
	}
	plain, err := b.acct.group("plain")
	if err != nil {
		return err
	}
	var farms []*farm
	defer func() {
		for _, f := range farms {
			f.close()
		}
	}()
	for _, s := range []farmSpec{
		{name: "rdistcc"},
		{name: "rdistcc, sandbox", sandbox: "strict"},
		{name: "rdistcc, sandbox and TLS", sandbox: "strict", tls: true},
	} {
		f, err := b.newFarm(s)
		if err != nil {
			return err
		}
		farms = append(farms, f)
	}
	sides := []*side{
		{name: "gcc", argv: []string{b.gcc, "-c", "empty.c", "-o", "plain.o"}, env: b.env()},
		{name: "gcc of the text", argv: []string{b.gcc, "-c", "text.i", "-o", "text.o"}, env: b.env()},
	}
	groups := []*group{plain, plain}
	for i, f := range farms {
		sides = append(sides, &side{name: f.name, argv: []string{filepath.Join(b.bin, "rdistcc"), "gcc", "-c", "empty.c", "-o", fmt.Sprintf("rdistcc%d.o", i)},
			env: f.env, host: f.host, manager: f.manager})
		groups = append(groups, f.g)
	}
	r, err := b.newRival("distcc", "", nil)
	switch {
	case errors.Is(err, errNoRival):
		fmt.Println("#", err)
	case err != nil:
		return err
	default:
		defer r.close()
		sides = append(sides, &side{name: "distcc", argv: []string{r.client, "gcc", "-c", "empty.c", "-o", "distcc.o"}, env: r.env, host: r.host})
		groups = append(groups, r.g)
	}
	for i, s := range sides {
		if s.run, err = newRunner(groups[i], b.tmp); err != nil {
			return err
		}
		defer s.run.close()
	}

	if err := b.compete("P1", sides, b.rounds, farms[0]); err != nil {
		return err
	}
	for _, f := range farms {
		if err := f.check(); err != nil {
			return err
		}
	}
	b.addCompiles(sides)
	return nil
}

// sidesOf returns a side for each of several farms, which are named as the sides: the same command of the compiler, and objects named after
// them. done ends the farms.
func (b *bench) sidesOf(specs []farmSpec, compile ...string) (sides []*side, farms []*farm, done func(), err error) {
	end := func() {
		for i, f := range farms {
			if i < len(sides) {
				sides[i].run.close()
			}
			f.close()
		}
	}
	for _, spec := range specs {
		f, err := b.newFarm(spec)
		if err != nil {
			end()
			return nil, nil, nil, err
		}
		farms = append(farms, f)
		r, err := newRunner(f.g, b.tmp)
		if err != nil {
			end()
			return nil, nil, nil, err
		}
		sides = append(sides, &side{name: spec.name, run: r, host: f.host, manager: f.manager, env: f.env,
			argv: slices.Concat([]string{filepath.Join(b.bin, "rdistcc")}, compile, []string{"-o", spec.name + ".o"})})
	}
	return sides, farms, end, nil
}

// anyUnit stands in a side's words for a source that differs in each round.
const anyUnit = "%s"

// compete runs the commands of all sides, one after the other, rounds times, after five rounds that do not count.
func (b *bench) compete(figure string, sides []*side, rounds int, f *farm) error {
	for round := -warmup; round < rounds; round++ {
		if err := b.turn(figure, sides, round, f); err != nil {
			return err
		}
	}
	return nil
}

// warmup is how many rounds do not count; they have numbers below 0.
const warmup = 5

// turn runs one round of compete.
func (b *bench) turn(figure string, sides []*side, round int, f *farm) error {
	for i := range sides {
		s := sides[(i+round+warmup)%len(sides)]
		far0, mgr0 := s.host.usage(), s.manager.ownCPU()
		argv := slices.Clone(s.argv)
		for i := range argv {
			if s.unit != nil && argv[i] == anyUnit {
				argv[i] = s.unit(round)
			}
		}
		t, err := s.run.run(b.ctx, settle, s.env, b.tmp, argv...)
		if err != nil {
			return f.trouble(err)
		}
		if round >= 0 {
			s.add(b, figure, round, t, s.host.usage()-far0, s.manager.ownCPU()-mgr0)
		}
	}
	return nil
}

// add records what one command took, with what its host and manager used meanwhile.
func (s *side) add(b *bench, figure string, round int, t took, far, mgr time.Duration) {
	x := sample{Figure: figure, Side: s.name, Round: round, WallMS: ms(t.wall), CPUMS: ms(t.cpu), ClientMS: ms(t.self),
		HostMS: ms(far), ManagerMS: ms(mgr)}
	b.log.add(x)
	s.wall, s.cpu = append(s.wall, x.WallMS), append(s.cpu, x.CPUMS)
	s.client, s.mgr, s.far = append(s.client, x.ClientMS), append(s.mgr, x.ManagerMS), append(s.far, x.HostMS)
}

// reset forgets what was recorded.
func (s *side) reset() { s.wall, s.cpu, s.client, s.mgr, s.far = nil, nil, nil, nil, nil }

func (b *bench) addCompiles(sides []*side) {
	mid := median
	if !b.acct.exact {
		mid = mean
	}
	base, text := sides[0], sides[1]
	for _, s := range sides {
		fmt.Printf("# CPU of %s: client with its preprocessor %.2f ms, manager %.2f, daemon with its compiler %.2f\n",
			s.name, median(s.client), median(s.mgr), mid(s.far))
	}
	// A daemon's own share is what it takes beyond the plain compiler: negative for one that does without
	// the compiler's driver.
	figures := func(s *side) [3]float64 {
		return [3]float64{median(diff(s.wall, base.wall)), mid(diff(s.cpu, base.cpu)), mid(diff(s.far, text.client))}
	}
	rows := [3]struct{ name, what, goal string }{
		{"P1", "wall added, empty C file", "<= 0.30"}, {"P2", "CPU added, the same job", "<= 0.30"}, {"P4", "daemon's CPU beyond the compiler's", "<= 0.50"},
	}
	plain, confined, both := sides[2], sides[3], sides[4]
	for _, c := range []struct {
		s    *side
		what string
	}{{plain, ""}, {confined, ", confined"}, {both, ", confined, TLS"}} {
		ours := figures(c.s)
		for i, r := range rows {
			if len(sides) < 6 {
				b.table.note(r.name, r.what+c.what, fmt.Sprintf("%.2f ms", ours[i]), "no distcc", r.goal)
				continue
			}
			b.table.ratio(r.name, r.what+c.what, "ms", ours[i], figures(sides[5])[i], r.goal)
		}
	}
	b.table.note("S4", "wall that the sandbox adds to a job", fmt.Sprintf("%.2f ms", median(diff(confined.wall, plain.wall))), "", "<= 0.50 ms")
	b.table.note("S4", "CPU that it adds", fmt.Sprintf("%.2f ms", mid(diff(confined.cpu, plain.cpu))), "", "")
	b.table.note("S6", "wall that TLS adds to a job", fmt.Sprintf("%.2f ms", median(diff(both.wall, confined.wall))), "", "")
}

// roundTrips measures P9 with a proxy between client and host that counts connections, and how often the
// client's side sent after the host's.
func (b *bench) roundTrips() error {
	if err := os.WriteFile(filepath.Join(b.tmp, "empty.c"), nil, 0o644); err != nil {
		return err
	}
	const warmup, jobs = 5, 20
	count := func(argv, env []string, g *group, p **iwarptest.Proxy) (conns, turns float64, err error) {
		r, err := newRunner(g, b.tmp)
		if err != nil {
			return 0, 0, err
		}
		defer r.close()
		var before iwarptest.ProxyCounts
		for i := range warmup + jobs {
			if i == warmup {
				before = (*p).Counts()
			}
			if _, err := r.run(b.ctx, 0, env, b.tmp, argv...); err != nil {
				return 0, 0, err
			}
		}
		after := (*p).Counts()
		return float64(after.Connections-before.Connections) / jobs, float64(after.Turns-before.Turns) / jobs, nil
	}
	var proxy *iwarptest.Proxy
	via := func(addr string) (string, error) {
		var err error
		if proxy, err = iwarptest.NewProxy(addr, nil); err != nil {
			return "", err
		}
		return proxy.Addr(), nil
	}
	f, err := b.newFarm(farmSpec{name: "rdistcc-p9", via: via})
	if proxy != nil {
		defer proxy.Close()
	}
	if err != nil {
		return err
	}
	defer f.close()
	conns, turns, err := count([]string{filepath.Join(b.bin, "rdistcc"), "gcc", "-c", "empty.c", "-o", "p9.o"}, f.env, f.g, &proxy)
	if err != nil {
		return f.trouble(err)
	}
	if err := f.check(); err != nil {
		return err
	}
	theirs := [2]string{"no distcc", "no distcc"}
	var rproxy *iwarptest.Proxy
	r, err := b.newRival("distcc-p9", "", func(addr string) (string, error) {
		var err error
		if rproxy, err = iwarptest.NewProxy(addr, nil); err != nil {
			return "", err
		}
		return rproxy.Addr(), nil
	})
	if rproxy != nil {
		defer rproxy.Close()
	}
	switch {
	case errors.Is(err, errNoRival):
	case err != nil:
		return err
	default:
		defer r.close()
		c, t, err := count([]string{r.client, "gcc", "-c", "empty.c", "-o", "p9d.o"}, r.env, r.g, &rproxy)
		if err != nil {
			return err
		}
		// A proxy sees neither the handshake nor what Nagle's algorithm delays.
		theirs = [2]string{fmt.Sprintf("%.2f", c), fmt.Sprintf("%.2f, and %.2f to connect", t, c)}
	}
	b.table.note("P9", "TCP connections a job, warm", fmt.Sprintf("%.2f", conns), theirs[0], "0")
	b.table.note("P9", "round trips a job, warm", fmt.Sprintf("%.2f", turns), theirs[1], "1")
	return nil
}
