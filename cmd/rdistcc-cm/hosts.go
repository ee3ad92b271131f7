package main

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/textfile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
)

// lookEvery is how often the files of a host list and the configuration are checked for changes.
const lookEvery = time.Second

// hostSource supplies the manager's own host list: the one of --hosts or the configuration,
// else of the first file that exists. A file is read again when it changes.
type hostSource struct {
	files []hostlist.File
	log   *slog.Logger

	mu     sync.Mutex
	fixed  bool // list comes from the flag or the configuration
	list   lists.HostList
	looked time.Time
	seen   []textfile.Stamp // of files, when list was read; nil: not read yet
}

func newHostSource(c *config.Config, getenv func(string) string, log *slog.Logger) *hostSource {
	s := &hostSource{files: hostlist.Files(getenv("RDISTCC_DIR"), getenv), log: log}
	s.configure(c)
	return s
}

// configure takes the host list of a configuration that was read again.
func (s *hostSource) configure(c *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(c.Hosts) > 0 {
		list, err := hostlist.ParseEntries(c.Hosts)
		s.fixed, s.list = true, lists.HostList{List: list, Where: c.Origin("hosts"), Err: err}
		return
	}
	if s.fixed {
		s.list, s.seen = lists.HostList{}, nil
	}
	s.fixed, s.looked = false, time.Time{}
}

// look returns the stamps by which changes of the files are noticed.
func (s *hostSource) look() []textfile.Stamp {
	stamps := make([]textfile.Stamp, len(s.files))
	for i, f := range s.files {
		stamps[i] = textfile.Look(f.Path)
	}
	return stamps
}

// get returns the current list. If a file was edited into something unusable, the last
// usable list stays in force.
func (s *hostSource) get() lists.HostList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fixed || time.Since(s.looked) < lookEvery {
		return s.list
	}
	seen := s.look()
	if s.seen != nil && !slices.Equal(seen, s.seen) {
		seen = textfile.Settled(s.look, slices.Equal)
	}
	s.looked = time.Now()
	if s.seen != nil && slices.Equal(seen, s.seen) {
		return s.list
	}
	first := s.seen == nil
	s.seen = seen
	list, where, err := hostlist.FromFiles(s.files, textfile.Optional(hostlist.MaxText))
	switch {
	case err != nil && !first && s.list.Err == nil && s.list.Where != "":
		s.log.Error("host list stays as it is", "err", err)
		s.list.Stale = err
		return s.list
	case err != nil:
		s.log.Error("host list", "err", err)
	case !first:
		s.log.Info("host list has changed", "file", where, "hosts", len(list.Hosts), "sources", len(list.Sources))
	}
	foreign := slices.ContainsFunc(s.files, func(f hostlist.File) bool { return f.Path == where && f.Foreign })
	s.list = lists.HostList{List: list, Where: where, Err: err, Distcc: foreign}
	return s.list
}
