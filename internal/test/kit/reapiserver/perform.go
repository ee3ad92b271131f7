package reapiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// laidTime is the time of all files of inputs.
var laidTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// perform lays out the inputs of an action, runs its command and takes its outputs. Files with the same content and mode are one
// file, and all have the same time: what the API does not promise, this server does not keep.
func (s *Server) perform(ctx context.Context, a *checked) (*repb.ActionResult, error) {
	dir, err := os.MkdirTemp(s.engine.dir, "action-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := s.lay(dir, a.action.InputRootDigest.Hash, a); err != nil {
		return nil, err
	}
	c := a.command
	work := filepath.Join(dir, c.WorkingDirectory)
	if st, err := os.Lstat(work); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("the working directory %q is none", c.WorkingDirectory)
	}
	for _, p := range c.OutputPaths {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(work, p)), 0o777); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithTimeout(ctx, a.action.Timeout.AsDuration())
	defer stop()
	r, err := s.start(ctx, dir, c)
	if err != nil {
		return nil, err
	}
	return r, s.take(r, work, c)
}

// lay makes a directory of the inputs.
func (s *Server) lay(dir, hash string, a *checked) error {
	m := a.dirs[hash]
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	for _, f := range m.Files {
		from, err := s.file(f.Digest, f.IsExecutable)
		if err != nil {
			return err
		}
		if err := os.Link(from, filepath.Join(dir, f.Name)); err != nil {
			return err
		}
	}
	for _, l := range m.Symlinks {
		if err := os.Symlink(l.Target, filepath.Join(dir, l.Name)); err != nil {
			return err
		}
	}
	for _, d := range m.Directories {
		sub := filepath.Join(dir, d.Name)
		if err := os.Mkdir(sub, 0o777); err != nil {
			return err
		}
		if err := s.lay(sub, d.Digest.Hash, a); err != nil {
			return err
		}
	}
	return nil
}

// file returns the name of a file with a blob.
func (s *Server) file(d *repb.Digest, exec bool) (string, error) {
	mode := os.FileMode(0o444)
	name := filepath.Join(s.engine.dir, d.Hash)
	if exec {
		mode, name = 0o555, name+"x"
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if s.engine.links[name] != "" {
		return name, nil
	}
	s.mu.Lock()
	b, err := s.load(d)
	s.mu.Unlock()
	if err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err == nil {
		err = os.Chtimes(name, laidTime, laidTime)
	}
	if err == nil {
		err = os.Chmod(name, mode)
	}
	s.engine.links[name] = name
	return name, err
}

// start runs the command.
func (s *Server) start(ctx context.Context, dir string, c *repb.Command) (*repb.ActionResult, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Arguments[0])
	cmd.Path, cmd.Args, cmd.Err = c.Arguments[0], c.Arguments, nil
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, []string{}
	for _, v := range c.EnvironmentVariables {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if cmd.Dir = filepath.Join(dir, c.WorkingDirectory); !s.o.Execute.Directory {
		cmd.Dir = "/" + c.WorkingDirectory
		Inside(cmd.SysProcAttr, dir)
	}
	err := cmd.Run()
	if errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil { // another action's process has not left the file that was written for it yet
		time.Sleep(time.Millisecond)
		return s.start(ctx, dir, c)
	}
	var ended *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &ended) && ended.ExitCode() >= 0:
	case errors.As(err, &ended):
		return &repb.ActionResult{ExitCode: 137}, nil
	default:
		return nil, err
	}
	r := &repb.ActionResult{ExitCode: int32(cmd.ProcessState.ExitCode()), StdoutRaw: stdout.Bytes()}
	if stderr.Len() > 0 { // not inline, as servers may
		r.StderrDigest = s.keep(stderr.Bytes())
	}
	return r, nil
}

// Inside has a process begin with dir as its root directory: in a user namespace, unless this is root.
func Inside(a *syscall.SysProcAttr, dir string) {
	a.Chroot = dir
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
}

// Possible returns nil if actions can run with their inputs as the root directory here.
func Possible(dir string) error {
	cmd := exec.Command("/none")
	cmd.Err, cmd.SysProcAttr = nil, &syscall.SysProcAttr{}
	Inside(cmd.SysProcAttr, dir)
	if err := cmd.Run(); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no process can have a root directory of its own: %w", err)
	}
	return nil
}

func (s *Server) keep(b []byte) *repb.Digest {
	d := &repb.Digest{Hash: hashOf(b), SizeBytes: int64(len(b))}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[d.Hash] = bytes.Clone(b)
	return d
}

// take takes the outputs.
func (s *Server) take(r *repb.ActionResult, work string, c *repb.Command) error {
	for _, p := range c.OutputPaths {
		name := filepath.Join(work, p)
		st, err := os.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			r.OutputSymlinks = append(r.OutputSymlinks, &repb.OutputSymlink{Path: p, Target: target})
		case st.Mode().IsRegular():
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			r.OutputFiles = append(r.OutputFiles, &repb.OutputFile{Path: p, Digest: s.keep(b), IsExecutable: st.Mode()&0o100 != 0})
		default:
			return fmt.Errorf("the output %q is a %s", p, strings.TrimSpace(st.Mode().Type().String()))
		}
	}
	return nil
}

func took(began time.Time) *repb.ExecutedActionMetadata {
	return &repb.ExecutedActionMetadata{Worker: "test", ExecutionStartTimestamp: timestamppb.New(began), ExecutionCompletedTimestamp: timestamppb.Now()}
}
