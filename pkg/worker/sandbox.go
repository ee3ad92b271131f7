package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
	"github.com/rdistcc/rdistcc/pkg/worker/users"
)

// setSandbox finds out how compiles can be confined, by opening the first runner's place.
func (s *Server) setSandbox(ctx context.Context, first *runner) error {
	if s.o.Cluster != nil {
		s.places.Trees = true // its workers show the build host's names
		return nil
	}
	if s.o.Sandbox == SandboxOff {
		if os.Geteuid() == 0 {
			s.o.Log.Warn("compiles run as root; name another user with --user")
		}
		if err := s.tryTrees(ctx, first.place); err != nil {
			return err
		}
		return s.needTrees()
	}
	s.places.Confined = true
	if s.o.Users != 0 {
		var err error
		s.users, err = users.Claim(s.o.Users, s.o.Jobs, s.o.Log)
		if s.ownUsers = err == nil; s.ownUsers {
			first.place.User = s.users.First
		} else {
			s.o.Log.Info("compiles have no users of their own", "err", err)
		}
	}
	// Without CAP_SYS_ADMIN, a tree takes a user namespace, in which there is one user. The tree is worth more than users.
	one := s.ownUsers && s.o.Tree != TreeOff && !privatetree.MayMount()
	if one {
		first.place.User = 0
	}
	if err := s.tryTrees(ctx, first.place); err != nil {
		return err
	}
	switch {
	case one && s.places.Trees:
		s.o.Log.Info("compiles have no users of their own", "err", "a private tree can have some only with CAP_SYS_ADMIN")
		s.users.Release()
		s.ownUsers = false
	case one:
		first.place.User = s.users.First
	}
	if !s.places.Trees {
		s.places.Bare = true
		if dir := users.ClosedTo(filepath.Dir(s.area.Path)); s.ownUsers && dir != "" {
			s.o.Log.Warn("compiles have no users of their own: they could not get to the work directory; set daemon.work-dir to one that they can", "closed", dir)
			s.users.Release()
			s.ownUsers, first.place.User = false, 0
		}
		if s.ownUsers { // the users have to enter their own directories, but must not list the work area
			if err := os.Chmod(s.area.Path, 0o711); err != nil {
				return err
			}
		}
		if err := s.openBare(ctx, first.place); err != nil {
			err = fmt.Errorf("confine compiles: %w", err)
			if run.Scarce(err) {
				return err
			}
			return errors.Join(s.cannotConfine(err), s.needTrees())
		}
	}
	if err := s.needTrees(); err != nil {
		return err
	}
	if os.Geteuid() == 0 && !s.ownUsers && !one {
		s.o.Log.Warn("compiles run as root; name another user with --user")
	}
	held := first.place.Measures()
	switch level := held.Level(); {
	case level >= sandbox.Confined:
	case s.o.Sandbox == SandboxStrict:
		return fmt.Errorf("sandbox is \"strict\": compiles would be %s here: %s", level, remedies(held))
	case level == sandbox.Off:
		return s.cannotConfine(fmt.Errorf("confine compiles: %s", remedies(held)))
	}
	return nil
}

// openBare opens the first place's tree, which is a directory of the host. If the system permits it, calls that name files are answered
// there, which makes it a private tree too.
func (s *Server) openBare(ctx context.Context, first *run.Place) error {
	if s.o.Tree != TreeOff {
		s.places.Answered = true
		err := first.Open(ctx, s.shown.Load().spec)
		if err == nil {
			s.o.Log.Info("private trees are made without namespaces: calls of compiles that name files are answered", "why", s.noTree)
			s.places.Trees, s.noTree = true, ""
			return nil
		}
		if s.places.Answered = false; !errors.Is(err, privatetree.ErrUnanswered) {
			return err
		}
		s.noTree = strings.TrimPrefix(s.noTree+"; "+err.Error(), "; ")
	}
	return first.Open(ctx, s.shown.Load().spec)
}

// cannotConfine gives up confining compiles because of err: an error in strict mode, otherwise logged.
func (s *Server) cannotConfine(err error) error {
	if s.o.Sandbox == SandboxStrict {
		return fmt.Errorf("sandbox is \"strict\": %w; \"sandbox: auto\" would run compiles unconfined", err)
	}
	s.places.Confined, s.places.Bare = false, false
	s.o.Log.Error("COMPILES ARE NOT CONFINED: whoever may send jobs can do here whatever this process's user can", "err", err)
	return nil
}
