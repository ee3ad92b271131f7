package main

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/config"
	"github.com/rdistcc/rdistcc/pkg/connmgr"
	"github.com/rdistcc/rdistcc/pkg/hostlist"
	"github.com/rdistcc/rdistcc/pkg/textfile"
)

// lookEvery is how often the files of a host list are looked at.
const lookEvery = time.Second

// hostSource gives the manager's own host list: that of --hosts or the
// configuration, else of the first file that exists, read again when it changes.
type hostSource struct {
	files []hostlist.File

	mu     sync.Mutex
	fixed  bool // list is of the flag or the configuration
	list   connmgr.HostList
	looked time.Time
	seen   []stamp // of files, when list was read
}

// stamp tells whether a file is still the same; zero: there is none.
type stamp struct {
	changed time.Time
	size    int64
}

func newHostSource(c *config.Config, getenv func(string) string) *hostSource {
	s := &hostSource{files: hostlist.Files(getenv("RDISTCC_DIR"), getenv)}
	s.configure(c)
	return s
}

// configure takes the list of a configuration that was read anew.
func (s *hostSource) configure(c *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed, s.seen, s.looked = len(c.Hosts) > 0, nil, time.Time{}
	if !s.fixed {
		return
	}
	list, err := hostlist.ParseEntries(c.Hosts)
	s.list = connmgr.HostList{List: list, Where: c.Origin("hosts"), Err: err}
}

// get is the list of now.
func (s *hostSource) get() connmgr.HostList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fixed || time.Since(s.looked) < lookEvery {
		return s.list
	}
	s.looked = time.Now()
	seen := make([]stamp, len(s.files))
	same := len(s.seen) == len(seen)
	for i, f := range s.files {
		if st, err := os.Stat(f.Path); err == nil {
			seen[i] = stamp{st.ModTime(), st.Size()}
		}
		same = same && seen[i] == s.seen[i]
	}
	if same {
		return s.list
	}
	s.seen = seen
	list, where, err := hostlist.FromFiles(s.files, readFile)
	s.list = connmgr.HostList{List: list, Where: where, Err: err}
	return s.list
}

// readFile is how the files of a host list are read.
func readFile(path string) (content []byte, exists bool, err error) {
	content, _, err = textfile.Read(path, hostlist.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return content, true, err
}
