package main

import (
	"strconv"
	"syscall"
)

func itoa(n int) string { return strconv.Itoa(n) }

// say writes one line for a person, if verbosity of at least level was asked
// for: to RDISTCC_LOG where that is set, else to standard error (under ccache,
// to the descriptor that it names). One write, so that lines of parallel jobs
// do not mix.
func (s *settings) say(level int, words ...string) {
	if s.verbose < level {
		return
	}
	line := []byte("rdistcc: ")
	for _, w := range words {
		for _, b := range []byte(w) {
			if b < ' ' || b == 0x7f {
				b = ' ' // a host's words must not steer the terminal
			}
			line = append(line, b)
		}
	}
	line = append(line, '\n')
	if s.log != "" {
		err := appendFile(s.log, line)
		if err == nil {
			return
		}
		log := s.log
		s.log = ""
		s.say(1, "RDISTCC_LOG=", log, ": ", err.Error(), "; writing to standard error")
	}
	for len(line) > 0 {
		n, err := syscall.Write(s.errFD, line)
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.EBADF && s.errFD != 2 {
			s.errFD = 2 // UNCACHED_ERR_FD of a ccache that has closed it
			continue
		}
		if err != nil {
			return // nobody reads: there is no one to tell
		}
		line = line[n:]
	}
}

// appendFile adds b to a file in one write, so that parallel jobs do not mix.
func appendFile(name string, b []byte) error {
	fd, err := syscall.Open(name, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CREAT|syscall.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	n, err := syscall.Write(fd, b)
	if cerr := syscall.Close(fd); err == nil {
		err = cerr
	}
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return err
}
