package slots

import (
	"fmt"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Message is memory for a Job message that carries its source, registered for local use.
type Message struct {
	Mem []byte // its length is what it has room for
	MR  iwarp.MR
	At  uint64 // where Mem starts in MR

	kept bool // it is part of messages.mr
}

// messages are pieces of one registered region, because registering costs as much as the copy.
type messages struct {
	mr iwarp.MR // set once by open; nil: there are none

	mu   sync.Mutex
	free []*Message // that are not in use; guarded by mu
}

// messagesKept is the number of pieces. More are needed only while that many jobs leave at the same moment.
const messagesKept = 32

// open makes messages of n bytes each.
func (s *messages) open(x *Memory, n int) (err error) {
	if n <= 0 {
		return nil
	}
	mem := make([]byte, messagesKept*n) // takes memory where it is used
	if s.mr, err = x.Register(mem, 0, nil); err != nil {
		return fmt.Errorf("connection manager: %w", err)
	}
	for at := 0; at < len(mem); at += n {
		s.free = append(s.free, &Message{Mem: mem[at:][:n:n], MR: s.mr, At: s.mr.Base() + uint64(at), kept: true})
	}
	return nil
}

// Message returns memory for a message of n bytes. The caller calls Give once it has been sent.
func (x *Memory) Message(n int) (*Message, error) {
	s := &x.messages
	s.mu.Lock()
	if last := len(s.free) - 1; last >= 0 && len(s.free[last].Mem) >= n {
		m := s.free[last]
		s.free = s.free[:last]
		s.mu.Unlock()
		return m, nil
	}
	s.mu.Unlock()
	mem := make([]byte, n)
	mr, err := x.Register(mem, 0, nil)
	if err != nil {
		return nil, err
	}
	return &Message{Mem: mem, MR: mr, At: mr.Base()}, nil
}

// Give takes a message back.
func (x *Memory) Give(m *Message) {
	if !m.kept {
		x.Dereg(m.MR)
		return
	}
	s := &x.messages
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, m)
}

func (s *messages) close(x *Memory) {
	if s.mr != nil {
		x.Dereg(s.mr)
	}
}
