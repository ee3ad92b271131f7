package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bazelbuild/remote-apis/build/bazel/semver"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/reapiserver"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// gcc returns this machine's, identified once.
func gcc(t *testing.T) *toolchain.Toolchain {
	t.Helper()
	tc, err := theGCC()
	if err != nil {
		t.Fatal(err)
	}
	return &tc
}

var theGCC = sync.OnceValues(func() (toolchain.Toolchain, error) {
	path, err := exec.LookPath("gcc")
	if err != nil {
		return toolchain.Toolchain{}, err
	}
	var c toolchain.Cache
	defer c.Close()
	tc, err := c.Identify(context.Background(), path)
	// What C does not need would only take time.
	tc.Files = slices.DeleteFunc(tc.Files, func(name string) bool {
		return slices.Contains([]string{"cc1plus", "cc1obj", "cc1objplus", "lto1"}, filepath.Base(name))
	})
	tc.Dirs = nil
	return tc, err
})

// possible skips a test that needs actions to run.
func possible(t *testing.T) {
	t.Helper()
	if err := reapiserver.Possible(t.TempDir()); err != nil {
		need.Skipf(t, need.Sandbox, "%v", err)
	}
}

func open(t *testing.T, o Options) *Cluster {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func file(name, text string) File {
	return File{Name: name, Content: []byte(text), Sum: sha256.Sum256([]byte(text))}
}

// compile returns a command that compiles text as /src/x.c.
func compile(tc *toolchain.Toolchain, text string) *Command {
	return &Command{
		Compiler: tc, Name: "gcc", Args: []string{"-g", "-c", "x.c", "-o", "x.o"}, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Dir: "/src",
		Files: []File{file("x.c", text)}, Outputs: []string{"x.o"}, Limit: time.Minute, MaxFile: 1 << 20, MaxPrinted: 1 << 16,
	}
}

// fault returns an Execution that has a fault in the executions after the proof, as many as there are faults.
func fault(faults ...reapiserver.Fault) *reapiserver.Execution {
	return &reapiserver.Execution{Fault: func(n int) reapiserver.Fault {
		if n >= 1 && n <= len(faults) {
			return faults[n-1]
		}
		return reapiserver.None
	}}
}

func causeOf(err error) (cause job.Cause, failed bool) {
	var no *job.Refusal
	var f *Failed
	if errors.As(err, &no) {
		cause = no.Cause
	}
	return cause, errors.As(err, &f)
}

// TestFaults: what goes wrong on the cluster and passes is tried again; anything else is a refusal or a failure, in one line that says
// what it is. No fault gives another object.
func TestFaults(t *testing.T) {
	possible(t)
	tc := gcc(t)
	var mu sync.Mutex
	var next []reapiserver.Fault
	server := reapiserver.Start(t, reapiserver.Options{Execute: &reapiserver.Execution{Fault: func(int) (f reapiserver.Fault) {
		mu.Lock()
		defer mu.Unlock()
		if len(next) > 0 {
			f, next = next[0], next[1:]
		}
		return f
	}}})
	k := open(t, Options{URL: "grpc://" + server.Addr, Lost: 500 * time.Millisecond})
	if _, err := k.base(t.Context(), tc); err != nil {
		t.Fatal(err)
	}
	all := func(f reapiserver.Fault) (list []reapiserver.Fault) {
		for range 1000 {
			list = append(list, f)
		}
		return list
	}
	for what, c := range map[string]struct {
		faults []reapiserver.Fault
		cause  job.Cause // CauseNone: it succeeds
		failed bool
		want   string
	}{
		"worker lost once":    {faults: []reapiserver.Fault{reapiserver.WorkerLost}},
		"stream broken":       {faults: []reapiserver.Fault{reapiserver.StreamBroken}},
		"operation forgotten": {faults: []reapiserver.Fault{reapiserver.Forgotten}},
		"no end of trouble":   {faults: []reapiserver.Fault{reapiserver.InputsGone, reapiserver.WorkerLost, reapiserver.StreamBroken, reapiserver.InputsGone}},
		"inputs gone once":    {faults: []reapiserver.Fault{reapiserver.InputsGone}},
		"cancelled once":      {faults: []reapiserver.Fault{reapiserver.Cancelled}},
		"worker always lost":  {all(reapiserver.WorkerLost), job.CauseInternal, true, "has lost it"},
		"inputs always gone":  {all(reapiserver.InputsGone), job.CauseInternal, true, "drops inputs"},
		"quota":               {all(reapiserver.Quota), job.CauseFull, false, "no room or quota left: "},
		"deadline":            {all(reapiserver.Deadline), job.CauseTimeout, true, "time limit"},
		"internal":            {all(reapiserver.Internal), job.CauseInternal, true, "the worker has a problem"},
		"invalid":             {all(reapiserver.Invalid), job.CauseTree, false, "no such platform"},
		"wrong digest":        {all(reapiserver.OtherDigest), job.CauseInternal, true, "x.o is not what the cluster says that it is"},
		"output gone":         {all(reapiserver.OutputGone), job.CauseInternal, true, "has lost x.o"},
		"no result":           {all(reapiserver.NoResult), job.CauseInternal, true, "without a result"},
		"killed":              {all(reapiserver.Killed), job.CauseInternal, true, "exit status 137"},
		"other processor":     {all(reapiserver.Unstartable), job.CauseInternal, true, "exit status 126"},
		"other message":       {all(reapiserver.OtherType), job.CauseInternal, true, "instead of an ExecuteResponse"},
	} {
		t.Run(what, func(t *testing.T) {
			mu.Lock()
			next = c.faults
			mu.Unlock()
			o, err := k.Run(t.Context(), compile(tc, "int f(int x) { return x; } // "+what+"\n"))
			cause, failed := causeOf(err)
			if cause != c.cause || failed != c.failed || err != nil && !strings.Contains(err.Error(), c.want) || err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%v (%v, failed %v), want %v, %q", err, cause, failed, c.cause, c.want)
			}
			if err == nil && (o.Exit != 0 || o.Outputs[0] == nil || !bytes.HasPrefix(o.Outputs[0].Content, []byte("\x7fELF"))) {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestUploads: what the server holds is sent once, whichever jobs need it, and at the same time; what it drops is sent again.
func TestUploads(t *testing.T) {
	possible(t)
	tc := gcc(t)
	for what, o := range map[string]reapiserver.Options{"no limits": {}, "small batches": {Batch: 20000}, "instance": {Instance: "team/main"}} {
		t.Run(what, func(t *testing.T) {
			o.Execute = &reapiserver.Execution{}
			server := reapiserver.Start(t, o)
			k := open(t, Options{URL: "grpc://" + server.Addr, Instance: o.Instance})
			var jobs sync.WaitGroup
			for i := range 4 {
				jobs.Go(func() {
					c := compile(tc, "int f;\n")
					c.Args = append(c.Args, "-DN="+string(rune('0'+i)))
					if _, err := k.Run(t.Context(), c); err != nil {
						t.Error(err)
					}
				})
			}
			jobs.Wait()
			st := k.Stats()
			base, err := k.base(t.Context(), tc)
			if err != nil {
				t.Fatal(err)
			}
			whole, seen := uint64(0), map[string]bool{}
			for _, b := range base.below {
				if !seen[b.Digest.Hash] {
					whole += uint64(b.Digest.SizeBytes)
				}
				seen[b.Digest.Hash] = true
			}
			if st.Sent < whole || st.Sent > whole+100<<10 {
				t.Errorf("%d bytes are sent for a toolchain of %d", st.Sent, whole)
			}
			if _, err := k.Run(t.Context(), compile(tc, "int g;\n")); err != nil {
				t.Fatal(err)
			}
			if n := k.Stats().Sent - st.Sent; n > 8<<10 {
				t.Errorf("%d bytes for another source", n)
			}
		})
	}
}

// TestUnfit: a server that will not do is told from one that can be tried again, in one line that says what it lacks.
func TestUnfit(t *testing.T) {
	x := func(x reapiserver.Execution) *reapiserver.Execution { return &x }
	for want, o := range map[string]reapiserver.Options{
		"runs no actions":            {Execute: x(reapiserver.Execution{Disabled: true})},
		"instance \"\" runs no":      {},
		"SHA256 as a digest":         {NoSHA256: true, Execute: x(reapiserver.Execution{})},
		"digest function of actions": {Execute: x(reapiserver.Execution{NoSHA256: true})},
		"speaks version 2.0":         {Execute: x(reapiserver.Execution{Low: &semver.SemVer{Major: 2}, High: &semver.SemVer{Major: 2}})},
		"speaks version 3.0":         {Execute: x(reapiserver.Execution{Low: &semver.SemVer{Major: 3}, High: &semver.SemVer{Major: 3, Minor: 1}})},
		"has no instance \"\"":       {Instance: "main", Execute: x(reapiserver.Execution{})},
		"see cluster.token-file":     {Header: "authorization", Value: "Bearer right", Execute: x(reapiserver.Execution{})},
	} {
		k := open(t, Options{URL: "grpc://" + reapiserver.Start(t, o).Addr})
		err := k.Check(t.Context())
		if !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
		if no := k.Trouble(); no == nil || no.Cause != job.CauseFull {
			t.Errorf("%s: work is taken: %v", want, no)
		}
	}
	k := open(t, Options{URL: "grpc://127.0.0.1:1"})
	if err := k.Check(t.Context()); err == nil || errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("nothing there: %v", err)
	}
	ok := open(t, Options{URL: "grpc://" + reapiserver.Start(t, reapiserver.Options{Execute: x(reapiserver.Execution{Low: &semver.SemVer{Major: 2}, High: &semver.SemVer{Major: 2, Minor: 12}})}).Addr})
	if err := ok.Check(t.Context()); err != nil || ok.Trouble() != nil {
		t.Error(err)
	}
}

// TestToken: a token that ends is replaced by the one that is in its place by then, and none is ever shown.
func TestToken(t *testing.T) {
	possible(t)
	server := reapiserver.Start(t, reapiserver.Options{Header: "authorization", Value: "Bearer second", Execute: &reapiserver.Execution{}})
	var mu sync.Mutex
	now := "first-s3cret"
	var log bytes.Buffer
	k := open(t, Options{URL: "grpc://" + server.Addr, Log: slog.New(slog.NewTextHandler(&log, nil)), Token: func() (secret.Secret, error) {
		mu.Lock()
		defer mu.Unlock()
		return secret.New(now), nil
	}})
	_, err := k.Run(t.Context(), compile(gcc(t), "int f;\n"))
	if cause, _ := causeOf(err); cause != job.CauseFull || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("an old token: %v", err)
	}
	mu.Lock()
	now = "second"
	mu.Unlock()
	if _, err := k.Run(t.Context(), compile(gcc(t), "int f;\n")); err != nil {
		t.Errorf("a new token: %v", err)
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Errorf("the log shows it: %s", &log)
	}
}

// TestWorkers: workers that show a root of their own are found out before any job runs there, whatever compiler they have.
func TestWorkers(t *testing.T) {
	server := reapiserver.Start(t, reapiserver.Options{Execute: &reapiserver.Execution{Directory: true}})
	k := open(t, Options{URL: "grpc://" + server.Addr})
	for range 2 {
		_, err := k.Run(t.Context(), compile(gcc(t), "int f;\n"))
		if cause, failed := causeOf(err); cause != job.CauseTree || failed || !strings.Contains(err.Error(), "docs/kubernetes.md") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
	if n := server.Executions(); n != 1 {
		t.Errorf("%d executions, for two jobs that cannot run", n)
	}
}

// TestPlatform: actions ask for the workers that the settings name.
func TestPlatform(t *testing.T) {
	possible(t)
	server := reapiserver.Start(t, reapiserver.Options{Execute: &reapiserver.Execution{Platform: map[string]string{"OSFamily": "linux", "pool": "c"}}})
	right := open(t, Options{URL: "grpc://" + server.Addr, Platform: map[string]string{"pool": "c", "OSFamily": "linux"}})
	if _, err := right.Run(t.Context(), compile(gcc(t), "int f;\n")); err != nil {
		t.Error(err)
	}
	other := open(t, Options{URL: "grpc://" + server.Addr, Platform: map[string]string{"pool": "d"}})
	if _, err := other.Run(t.Context(), compile(gcc(t), "int f;\n")); err == nil {
		t.Error("another pool has run it")
	}
}

// TestCancel: when nobody waits for a job, the cluster is told, and waits for nothing.
func TestCancel(t *testing.T) {
	possible(t)
	server := reapiserver.Start(t, reapiserver.Options{Execute: fault(slices.Repeat([]reapiserver.Fault{reapiserver.Hangs}, 20)...)})
	k := open(t, Options{URL: "grpc://" + server.Addr})
	began := 2 // with the one that shows what the cluster can do
	// Nothing is to be cancelled as long as the operation's name has not come.
	for wait := time.Millisecond; server.Cancelled() == 0 && wait < time.Minute; wait *= 2 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for server.Executions() < began {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(wait)
			cancel()
		}()
		if _, err := k.Run(ctx, compile(gcc(t), "int f;\n")); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		began = server.Executions() + 1
	}
	if n := server.Cancelled(); n != 1 {
		t.Errorf("%d operations are cancelled", n)
	}
}

// TestHazards: jobs whose result could depend on times and inodes of files are refused, and others with the same files are not.
func TestHazards(t *testing.T) {
	g, c := &toolchain.Toolchain{Family: "gcc"}, &toolchain.Toolchain{Family: "clang"}
	twin := func(text string) []File { return []File{file("a.h", text), file("b.h", text)} }
	for what, x := range map[string]struct {
		tc    *toolchain.Toolchain
		files []File
		no    string
	}{
		"gcc, two of a kind":          {g, twin("int x;\n"), ""},
		"gcc, once":                   {g, twin("#pragma once\n"), "same content"},
		"gcc, imported":               {g, twin("#import <x.h>\n"), "same content"},
		"gcc, once by an operator":    {g, append(twin("X\n"), file("c.h", "#define X _Pragma ( \"once\" )\n")), "same content"},
		"gcc, once beside a mark":     {g, []File{file("a.h", "#pragma once\n"), file("b.h", byteOrderMark+"#pragma once\n")}, "same content"},
		"gcc, hard link":              {g, []File{file("a.h", "#pragma once\n"), {Name: "b.h", Same: 1}}, "same content"},
		"gcc, time":                   {g, []File{file("a.c", "char *t = __TIMESTAMP__;\n")}, "__TIMESTAMP__"},
		"gcc, different":              {g, []File{file("a.h", "#pragma once\n"), file("b.h", "#pragma once\n\n")}, ""},
		"clang, two of a kind":        {c, twin("int x;\n"), "same content"},
		"clang, hard link":            {c, []File{file("a.h", "int x;\n"), {Name: "b.h", Same: 1}}, "same content"},
		"clang, module":               {c, []File{file("a.pcm", "CPCH1234")}, "certain times"},
		"gcc, what is clang's module": {g, []File{file("a.pcm", "CPCH1234")}, ""},
	} {
		var k knownTraits
		for range 2 { // what is remembered is the same
			err := k.hazard(&Command{Compiler: x.tc, Files: x.files})
			if cause, _ := causeOf(err); (err == nil) != (x.no == "") || err != nil && (cause != job.CauseTree || !strings.Contains(err.Error(), x.no)) {
				t.Errorf("%s: %v, want %q", what, err, x.no)
			}
		}
	}
}

// TestObject: the object has the names of the build host, and equals the one that is made here.
func TestObject(t *testing.T) {
	possible(t)
	dir := t.TempDir()
	text := "#include \"y.h\"\nint f(int x) { return x + Y; }\n"
	for name, text := range map[string]string{"x.c": text, "y.h": "#define Y 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := compile(gcc(t), text)
	c.Dir, c.Files = dir, append(c.Files, file(dir+"/y.h", "#define Y 1\n"))
	k := open(t, Options{URL: "grpc://" + reapiserver.Start(t, reapiserver.Options{Execute: &reapiserver.Execution{}}).Addr})
	o, err := k.Run(t.Context(), c)
	if err != nil || o.Exit != 0 {
		t.Fatal(o, err)
	}
	cmd := exec.Command("gcc", c.Args...)
	cmd.Dir, cmd.Env = dir, append(c.Env, "PWD="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want, err := os.ReadFile(filepath.Join(dir, "x.o")); err != nil || !bytes.Equal(want, o.Outputs[0].Content) {
		t.Errorf("the object differs, %v", err)
	}
}

// TestTry: whether a server takes uploads, and how far its clock is off, is found out beforehand.
func TestTry(t *testing.T) {
	try := func(o reapiserver.Options) (time.Duration, bool, error) {
		o.Execute = &reapiserver.Execution{}
		return open(t, Options{URL: "grpc://" + reapiserver.Start(t, o).Addr}).Try(t.Context())
	}
	if _, told, err := try(reapiserver.Options{}); told || err != nil {
		t.Errorf("an ordinary server: a time %v, %v", told, err)
	}
	if ahead, told, err := try(reapiserver.Options{Ahead: -time.Hour}); !told || err != nil || ahead > 2*time.Second-time.Hour || ahead < -time.Hour-time.Minute {
		t.Errorf("an hour behind: %v, %v, %v", ahead, told, err)
	}
	if _, _, err := try(reapiserver.Options{Full: true}); err == nil || !strings.Contains(err.Error(), "no room or quota left: the quota of this project is used up") || strings.Contains(err.Error(), "\n") {
		t.Errorf("without quota: %v", err)
	}
}

// TestKeptFailure: a server that has the result of an action that failed runs it again, as the reason may have gone; others it answers by
// what it has.
func TestKeptFailure(t *testing.T) {
	possible(t)
	tc := gcc(t)
	server := reapiserver.Start(t, reapiserver.Options{Execute: &reapiserver.Execution{KeepsFailures: true}})
	c := open(t, Options{URL: "grpc://" + server.Addr, Cached: true})
	for _, x := range []struct {
		text   string
		status int
	}{{"int x;\n", 0}, {"int\n", 1}} {
		for again := range 2 {
			o, err := c.Run(t.Context(), compile(tc, x.text))
			if err != nil {
				t.Fatal(err)
			}
			if o.Exit != x.status || o.Cached != (again == 1 && x.status == 0) {
				t.Errorf("%q, time %d: exit %d, from what the server has: %v", x.text, again, o.Exit, o.Cached)
			}
		}
	}
}

// TestManyJobs: thousands of jobs at a time each get their own result, and leave nothing behind.
func TestManyJobs(t *testing.T) {
	const jobs, texts = 5000, 5
	possible(t)
	tc := gcc(t)
	server := reapiserver.Start(t, reapiserver.Options{Execute: &reapiserver.Execution{}})
	c := open(t, Options{URL: "grpc://" + server.Addr, Cached: true}) // the server runs few of them
	var want [texts][]byte
	text := func(i int) string { return fmt.Sprintf("int x = %d;\n", i%texts) }
	for i := range want {
		o, err := c.Run(t.Context(), compile(tc, text(i)))
		if err != nil {
			t.Fatal(err)
		}
		want[i] = o.Outputs[0].Content
	}
	before := runtime.NumGoroutine()
	var wrong atomic.Int64
	var all sync.WaitGroup
	for i := range jobs {
		all.Go(func() {
			o, err := c.Run(t.Context(), compile(tc, text(i)))
			if err != nil || !bytes.Equal(o.Outputs[0].Content, want[i%texts]) {
				wrong.Add(1)
			}
		})
	}
	all.Wait()
	if wrong.Load() > 0 {
		t.Errorf("%d of %d jobs have no result, or another's", wrong.Load(), jobs)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+10 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before+10 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}
