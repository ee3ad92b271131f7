// Package engine runs a server of the Remote Execution API that is not ours, and executes actions: buildbox-casd of Debian's unstable
// suite, with its runner for bubblewrap, which shows an action its input root as the root directory.
package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

// ErrMissing is wrapped by errors of Start where the programs cannot be had.
var ErrMissing = errors.New("no buildbox-casd to be had")

// patience bounds how long the server takes to listen.
const patience = time.Minute

// Engine is a server that runs.
type Engine struct {
	Addr string // on loopback
	Log  string // its file

	cmd *exec.Cmd
}

// Start starts a server that keeps what it has in dir, and runs that many actions at a time. The programs are fetched if need be.
func Start(ctx context.Context, a *debsrc.Archives, dir string, jobs int) (*Engine, error) {
	server, err := a.Program(ctx, "unstable", "buildbox", "usr/bin/buildbox-casd", "usr/bin/buildbox-run-bubblewrap", "usr/bin/bwrap")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	ports, err := farm.FreePorts(1)
	if err != nil {
		return nil, err
	}
	e := &Engine{Addr: ports[0], Log: filepath.Join(dir, "engine.log")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(e.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	programs := filepath.Dir(server)
	e.cmd = exec.Command(server, "--bind="+e.Addr, "--buildbox-run="+filepath.Join(programs, "buildbox-run-bubblewrap"), fmt.Sprintf("--jobs=%d", jobs),
		"--log-level=warning", filepath.Join(dir, "cas"))
	e.cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "TMPDIR="+dir)
	e.cmd.Dir, e.cmd.Stdout, e.cmd.Stderr = dir, log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", e.Addr)
		if err == nil {
			return e, c.Close()
		}
		if time.Now().After(end) || ctx.Err() != nil {
			text, _ := os.ReadFile(e.Log) // there is an error already
			return nil, errors.Join(fmt.Errorf("buildbox-casd does not listen: %w: %s", err, text), e.Stop())
		}
	}
}

// Stop ends the server with what it has started.
func (e *Engine) Stop() error {
	err := syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
	_ = e.cmd.Wait() // killed
	return err
}

// Client asks a server for actions that it knows, and does nothing else.
type Client struct{ conn *grpc.ClientConn }

// Dial returns a client of the server at addr. The caller closes it.
func Dial(addr string) (*Client, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &Client{conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Execute has an action executed, whatever the server has cached, and waits for its end. size is that of the Action, in bytes. A command
// that fails is an error.
func (c *Client) Execute(ctx context.Context, hash string, size int64) error {
	s, err := repb.NewExecutionClient(c.conn).Execute(ctx, &repb.ExecuteRequest{ActionDigest: &repb.Digest{Hash: hash, SizeBytes: size},
		SkipCacheLookup: true, DigestFunction: repb.DigestFunction_SHA256})
	if err != nil {
		return err
	}
	for {
		op, err := s.Recv()
		if err != nil {
			return err
		}
		if !op.Done {
			continue
		}
		var r repb.ExecuteResponse
		if err := op.GetResponse().UnmarshalTo(&r); err != nil {
			return err
		}
		if r.GetStatus().GetCode() != 0 || r.GetResult().GetExitCode() != 0 {
			return fmt.Errorf("the action: %v, exit %d", r.GetStatus(), r.GetResult().GetExitCode())
		}
		return nil
	}
}
