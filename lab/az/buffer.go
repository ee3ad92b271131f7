package az

import (
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/stream"
)

// Buffer is one buffer with its views. Who writes to the application's view owns it.
//
// It is together or apart. Together, both views show the same memory. Apart, the application's has pages of its own where the
// application has written, and op says whether the shared one is still being sent from. A buffer that is apart without
// an op could not be mapped as shared again; its contents are whole, and it is sent from by copying.
type Buffer struct {
	a           *Arena
	off         int // of the arena's file
	app, shared []byte
	apart       bool
	op          *stream.Op // nil: nothing is being sent
	conn        *Conn      // that sends, or has sent last
	n           int        // bytes that are sent
}

// part takes the views apart.
func (b *Buffer) part() error {
	if err := b.a.remap(b.app, b.off, unix.MAP_PRIVATE); err != nil {
		return err
	}
	b.apart = true
	return nil
}

// join brings the views together again, with what the application has written. Nothing may be sent from the buffer. It returns
// how many bytes of pages had been written to. After an error the buffer stays apart.
func (b *Buffer) join() (touched int, err error) {
	a := b.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spans, err = a.dirt.of(b.app, a.spans[:0]); err != nil {
		return 0, err
	}
	for _, s := range a.spans {
		touched += copy(b.shared[s.from:s.to], b.app[s.from:s.to])
	}
	if err := a.remap(b.app, b.off, unix.MAP_SHARED); err != nil {
		return touched, err
	}
	b.apart = false
	return touched, nil
}

// settle waits until nothing is sent from the buffer, and brings its views together. What went wrong is noted for
// the connection's next call.
func (b *Buffer) settle() {
	if !b.apart {
		return
	}
	var lost error
	sent := b.op != nil
	if sent {
		_, lost = b.op.Wait()
		b.op = nil
	}
	touched, err := b.join()
	b.conn.settled(b, sent, touched, lost, err)
}
