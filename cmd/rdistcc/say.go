package main

import (
	"strconv"
	"syscall"
)

func itoa(n int) string { return strconv.Itoa(n) }

// say writes one line for a person if the verbosity asked for is at least level. It goes
// to RDISTCC_LOG if that is set, else to standard error (under ccache, to the descriptor
// that ccache names). It is a single write, so that lines of parallel jobs do not mix.
func (s *settings) say(level int, words ...string) {
	if s.Verbose < level {
		return
	}
	line := []byte("rdistcc: ")
	for _, w := range words {
		for _, b := range []byte(w) {
			if b < ' ' || b == 0x7f {
				b = ' ' // text from a host must not control the terminal
			}
			line = append(line, b)
		}
	}
	line = append(line, '\n')
	if s.Log != "" {
		err := appendFile(s.Log, line)
		if err == nil {
			return
		}
		log := s.Log
		s.Log = ""
		s.say(1, "RDISTCC_LOG=", log, ": ", err.Error(), "; writing to standard error")
	}
	for len(line) > 0 {
		n, err := syscall.Write(s.ErrFD, line)
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.EBADF && s.ErrFD != 2 {
			s.ErrFD = 2 // UNCACHED_ERR_FD of a ccache that has closed it
			continue
		}
		if err != nil {
			return // there is no reader, and nowhere to report that
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
