package reapiserver

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/bazelbuild/remote-apis/build/bazel/semver"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Execution says how a server runs actions. They really run, on this machine: where, Root says.
type Execution struct {
	// Directory runs actions in their build directory only, as a worker does that shows its own root.
	Directory     bool
	Platform      map[string]string // properties that actions must ask for
	Low, High     *semver.SemVer    // versions of the API; nil: it does not say
	Disabled      bool              // it says that it runs none
	NoSHA256      bool              // for actions
	KeepsFailures bool              // it has results of actions that failed, too, as buildbox-casd does unless told otherwise
	// Fault, if not nil, is asked for each execution, from 0 on.
	Fault func(n int) Fault
}

// Fault is what goes wrong in one execution.
type Fault int

// Faults.
const (
	None         Fault = iota
	WorkerLost         // the action ends by UNAVAILABLE, and was not run
	StreamBroken       // the stream of the operation ends without its end; the operation goes on
	Forgotten          // the same, and the operation is gone
	InputsGone         // the server has dropped inputs
	Quota              // RESOURCE_EXHAUSTED
	Deadline           // DEADLINE_EXCEEDED
	Cancelled          // somebody has cancelled the operation
	Internal           // INTERNAL
	Invalid            // INVALID_ARGUMENT
	OtherDigest        // outputs are not what their digests say
	OutputGone         // the server has lost an output
	NoResult           // OK, without a result
	Killed             // the command was killed
	Unstartable        // the worker is of another processor
	Hangs              // it never ends
	OtherType          // the operation ends with another message
)

// engine runs actions.
type engine struct {
	dir     string
	running sync.WaitGroup
	ctx     context.Context
	stopAll context.CancelFunc

	mu        sync.Mutex
	n         int // executions so far
	ops       map[string]*operation
	cancelled int
	links     map[string]string             // the file with a content, by hash and mode
	answers   map[string]*repb.ActionResult // of what has run without a fault, by the action's hash
}

// had returns the answer to an execution that may be one of an earlier run; nil: there was none.
func (e *engine) had(r *repb.ExecuteRequest) *repb.ExecuteResponse {
	e.mu.Lock()
	defer e.mu.Unlock()
	if was := e.answers[r.ActionDigest.GetHash()]; was != nil && !r.SkipCacheLookup {
		return &repb.ExecuteResponse{Result: was, CachedResult: true}
	}
	return nil
}

func (e *engine) remember(r *repb.ExecuteRequest, answer *repb.ExecuteResponse) {
	if result := answer.GetResult(); result != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.answers[r.ActionDigest.GetHash()] = result
	}
}

// operation is one execution.
type operation struct {
	name   string
	stop   context.CancelFunc
	done   chan struct{}
	answer *repb.ExecuteResponse // set when done
}

func (s *Server) openEngine(t testing.TB) {
	e := &s.engine
	e.dir, e.ops, e.links, e.answers = t.TempDir(), make(map[string]*operation), make(map[string]string), make(map[string]*repb.ActionResult)
	e.ctx, e.stopAll = context.WithCancel(context.Background())
	repb.RegisterExecutionServer(s.grpc, s)
	longrunningpb.RegisterOperationsServer(s.grpc, s)
}

func (x *Execution) low() *semver.SemVer {
	if x == nil {
		return nil
	}
	return x.Low
}

func (x *Execution) high() *semver.SemVer {
	if x == nil {
		return nil
	}
	return x.High
}

func (s *Server) executes() *repb.ExecutionCapabilities {
	x := s.o.Execute
	if x == nil {
		return nil
	}
	function := repb.DigestFunction_SHA256
	if x.NoSHA256 {
		function = repb.DigestFunction_BLAKE3
	}
	return &repb.ExecutionCapabilities{ExecEnabled: !x.Disabled, DigestFunction: function, DigestFunctions: []repb.DigestFunction_Value{function}}
}

// Executions returns how many executions have begun.
func (s *Server) Executions() int {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.engine.n
}

// Cancelled returns how many operations clients have cancelled.
func (s *Server) Cancelled() int {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.engine.cancelled
}

// Execute implements the API.
func (s *Server) Execute(r *repb.ExecuteRequest, stream repb.Execution_ExecuteServer) error {
	if err := s.instance(r.InstanceName); err != nil {
		return err
	}
	if r.DigestFunction != repb.DigestFunction_SHA256 {
		return status.Errorf(codes.InvalidArgument, "digest function %v", r.DigestFunction)
	}
	e := &s.engine
	ctx, stop := context.WithCancel(e.ctx)
	e.mu.Lock()
	fault := None
	if f := s.o.Execute.Fault; f != nil {
		fault = f(e.n)
	}
	op := &operation{name: fmt.Sprintf("operations/%d", e.n), stop: stop, done: make(chan struct{})}
	e.n++
	e.ops[op.name] = op
	e.mu.Unlock()
	switch fault {
	case Quota:
		return status.Error(codes.ResourceExhausted, "the queue is full")
	case Invalid:
		return status.Error(codes.InvalidArgument, "no such platform")
	case InputsGone:
		s.Evict()
	}
	e.running.Go(func() {
		defer stop()
		defer close(op.done)
		if op.answer = e.had(r); op.answer == nil {
			op.answer = s.run(ctx, r.ActionDigest, fault)
			if fault == None && (op.answer.GetResult().GetExitCode() == 0 || s.o.Execute.KeepsFailures) {
				e.remember(r, op.answer)
			}
		}
	})
	if fault == StreamBroken || fault == Forgotten {
		if fault == Forgotten {
			e.mu.Lock()
			delete(e.ops, op.name)
			e.mu.Unlock()
		}
		if err := stream.Send(&longrunningpb.Operation{Name: op.name}); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "the frontend is being replaced")
	}
	return op.follow(stream, fault)
}

// sender is a stream that tells of an operation.
type sender interface {
	Send(*longrunningpb.Operation) error
	Context() context.Context
}

func (op *operation) follow(stream sender, fault Fault) error {
	if err := stream.Send(&longrunningpb.Operation{Name: op.name}); err != nil {
		return err
	}
	select {
	case <-op.done:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	var end proto.Message = op.answer
	if fault == OtherType {
		end = &repb.ActionResult{}
	}
	packed, err := anypb.New(end)
	if err != nil {
		return err
	}
	return stream.Send(&longrunningpb.Operation{Name: op.name, Done: true, Result: &longrunningpb.Operation_Response{Response: packed}})
}

// WaitExecution implements the API.
func (s *Server) WaitExecution(r *repb.WaitExecutionRequest, stream repb.Execution_WaitExecutionServer) error {
	s.engine.mu.Lock()
	op := s.engine.ops[r.Name]
	s.engine.mu.Unlock()
	if op == nil {
		return status.Errorf(codes.NotFound, "no operation %q", r.Name)
	}
	return op.follow(stream, None)
}

// CancelOperation implements the API of operations.
func (s *Server) CancelOperation(_ context.Context, r *longrunningpb.CancelOperationRequest) (*emptypb.Empty, error) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if op := s.engine.ops[r.Name]; op != nil {
		op.stop()
		s.engine.cancelled++
	}
	return &emptypb.Empty{}, nil
}

// failed returns the end of an execution by a status.
func failed(code codes.Code, format string, args ...any) *repb.ExecuteResponse {
	return &repb.ExecuteResponse{Status: status.Newf(code, format, args...).Proto()}
}

// run runs an action.
func (s *Server) run(ctx context.Context, d *repb.Digest, fault Fault) *repb.ExecuteResponse {
	switch fault {
	case WorkerLost:
		return failed(codes.Unavailable, "the worker has gone")
	case Deadline:
		return failed(codes.DeadlineExceeded, "the action took too long")
	case Cancelled:
		return failed(codes.Canceled, "cancelled")
	case Internal:
		return failed(codes.Internal, "the worker has a problem")
	case NoResult:
		return &repb.ExecuteResponse{}
	case Killed:
		return &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 137}}
	case Unstartable:
		return &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 126, StderrRaw: []byte("cannot execute binary file: Exec format error\n")}}
	case Hangs:
		<-ctx.Done()
		return failed(codes.Canceled, "cancelled")
	}
	a, missing, err := s.read(d)
	if len(missing) > 0 {
		return gone(missing)
	}
	if err != nil {
		return failed(codes.InvalidArgument, "%v", err)
	}
	began := time.Now()
	result, err := s.perform(ctx, a)
	if err != nil {
		return failed(codes.Internal, "%v", err)
	}
	if ctx.Err() != nil {
		return failed(codes.Canceled, "cancelled")
	}
	result.ExecutionMetadata = took(began)
	s.spoil(result, fault)
	return &repb.ExecuteResponse{Result: result}
}

// spoil makes outputs wrong.
func (s *Server) spoil(r *repb.ActionResult, fault Fault) {
	if len(r.OutputFiles) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := r.OutputFiles[0].Digest
	switch fault {
	case OtherDigest:
		other := append([]byte(nil), s.blobs[d.Hash]...)
		other[len(other)/2] ^= 1
		s.blobs[d.Hash] = other
	case OutputGone:
		delete(s.blobs, d.Hash)
	}
}

// gone returns the end of an execution whose inputs are missing.
func gone(missing []*repb.Digest) *repb.ExecuteResponse {
	f := &errdetails.PreconditionFailure{}
	for _, d := range missing {
		f.Violations = append(f.Violations, &errdetails.PreconditionFailure_Violation{Type: "MISSING", Subject: fmt.Sprintf("blobs/%s/%d", d.GetHash(), d.GetSizeBytes())})
	}
	st, err := status.New(codes.FailedPrecondition, "blobs are missing").WithDetails(f)
	if err != nil {
		panic(err) // the message is a right one
	}
	return &repb.ExecuteResponse{Status: st.Proto()}
}

// checked is an action that is there as a whole and obeys the API.
type checked struct {
	action  *repb.Action
	command *repb.Command
	dirs    map[string]*repb.Directory // by hash
}

// read reads an action, and checks it. missing are the blobs that are not there.
func (s *Server) read(d *repb.Digest) (a *checked, missing []*repb.Digest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	get := func(d *repb.Digest, m proto.Message) bool {
		b, e := s.load(d)
		if e != nil {
			missing = append(missing, d)
			return false
		}
		if m != nil && proto.Unmarshal(b, m) != nil {
			err = fmt.Errorf("%v is not what it should be", d)
		}
		return err == nil
	}
	a = &checked{action: &repb.Action{}, command: &repb.Command{}, dirs: make(map[string]*repb.Directory)}
	if !get(d, a.action) || !get(a.action.CommandDigest, a.command) {
		return nil, missing, err
	}
	todo := []*repb.Digest{a.action.InputRootDigest}
	for len(todo) > 0 {
		d := todo[0]
		todo = todo[1:]
		if a.dirs[d.GetHash()] != nil {
			continue
		}
		m := &repb.Directory{}
		if !get(d, m) {
			if err != nil {
				return nil, nil, err
			}
			continue
		}
		a.dirs[d.Hash] = m
		if err := rightDirectory(m); err != nil {
			return nil, nil, err
		}
		for _, f := range m.Files {
			get(f.Digest, nil)
		}
		for _, sub := range m.Directories {
			todo = append(todo, sub.Digest)
		}
	}
	if len(missing) > 0 {
		return nil, missing, nil
	}
	return a, nil, s.right(a)
}

// rightDirectory checks one directory: names in order, each once, and links that lead nowhere above the root by an absolute name.
func rightDirectory(m *repb.Directory) error {
	var files, dirs, links []string
	for _, f := range m.Files {
		files = append(files, f.Name)
	}
	for _, d := range m.Directories {
		dirs = append(dirs, d.Name)
	}
	for _, l := range m.Symlinks {
		links = append(links, l.Name)
		if l.Target == "" || l.Target[0] == '/' || strings.Contains(l.Target, "//") || strings.Contains("/"+l.Target+"/", "/./") || strings.HasSuffix(l.Target, "/") {
			return fmt.Errorf("the link %q leads to %q", l.Name, l.Target)
		}
	}
	all := slices.Concat(files, dirs, links)
	if !slices.IsSorted(files) || !slices.IsSorted(dirs) || !slices.IsSorted(links) {
		return fmt.Errorf("names are not in order: %q", all)
	}
	slices.Sort(all)
	for i, name := range all {
		if name == "" || name == "." || name == ".." || strings.Contains(name, "/") || i > 0 && name == all[i-1] {
			return fmt.Errorf("the name %q", name)
		}
	}
	return nil
}

// right checks what the API says of commands.
func (s *Server) right(a *checked) error {
	c := a.command
	var env []string
	for _, v := range c.EnvironmentVariables {
		env = append(env, v.Name)
	}
	paths := slices.Clone(c.OutputPaths)
	slices.Sort(paths)
	switch {
	case len(c.Arguments) == 0:
		return fmt.Errorf("no arguments")
	case !slices.IsSorted(env):
		return fmt.Errorf("the environment is not in order: %q", env)
	case !slices.Equal(slices.Compact(paths), c.OutputPaths):
		return fmt.Errorf("the output paths are not in order, or one is there twice: %q", c.OutputPaths)
	case a.action.Timeout == nil || a.action.Timeout.AsDuration() < time.Second:
		return fmt.Errorf("the timeout %v", a.action.Timeout)
	case path.IsAbs(c.WorkingDirectory) || c.WorkingDirectory != strings.Trim(path.Clean("/"+c.WorkingDirectory), "/"):
		return fmt.Errorf("the working directory %q", c.WorkingDirectory)
	}
	for _, p := range c.OutputPaths {
		if p == "" || path.IsAbs(p) || path.Clean(p) != p {
			return fmt.Errorf("the output path %q", p)
		}
	}
	want := s.o.Execute.Platform
	asked := a.action.Platform.GetProperties()
	for i, p := range asked {
		if want[p.Name] != p.Value || i > 0 && p.Name < asked[i-1].Name {
			return fmt.Errorf("no worker is %s=%s", p.Name, p.Value)
		}
	}
	if len(asked) != len(want) {
		return fmt.Errorf("the action asks for %d properties", len(asked))
	}
	return nil
}
