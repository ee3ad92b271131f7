package iwarp_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// node is what a program needs for one connection: a device, a protection domain,
// one completion queue and one queue pair.
type node struct {
	dev iwarp.Device
	pd  iwarp.PD
	cq  iwarp.CQ
	qp  iwarp.QP
}

func newNode() *node {
	dev, err := iwarp.Open(iwarp.Config{})
	must(err)
	pd, err := dev.AllocPD()
	must(err)
	cq, err := dev.CreateCQ(32)
	must(err)
	qp, err := pd.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 16, MaxRecv: 16})
	must(err)
	return &node{dev, pd, cq, qp}
}

// register makes buf known to the device.
func (s *node) register(buf []byte, a iwarp.Access) iwarp.MR {
	mr, err := s.pd.RegMR(buf, a, nil)
	must(err)
	return mr
}

// receive posts a receive into mr.
func (s *node) receive(id uint64, mr iwarp.MR) {
	must(s.qp.PostRecv(&iwarp.RecvWR{ID: id, SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(mr.Len()), LKey: mr.STag()}}}))
}

// next waits for one completion.
func (s *node) next() iwarp.WC {
	must(s.cq.Wait(context.Background()))
	var wc [1]iwarp.WC
	s.cq.Poll(wc[:])
	if wc[0].Status != iwarp.StatusSuccess {
		log.Fatalf("request %d: %s; %v", wc[0].ID, wc[0].Status, s.qp.Err())
	}
	return wc[0]
}

// connect makes a connection between two nodes of one program. In life they are
// two programs, and what is a goroutine here is the server.
func connect(client, server *node) {
	ctx := context.Background()
	depth := &iwarp.ConnParam{ORD: 4, IRD: 4} // RDMA Reads in flight
	l, err := server.dev.Listen(ctx, "127.0.0.1:0", nil)
	must(err)
	defer l.Close()
	accepted := make(chan error)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, server.qp, depth)
		}
		accepted <- err
	}()
	_, err = client.dev.Dial(ctx, l.Addr().String(), client.qp, depth)
	must(err)
	must(<-accepted)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A Write goes into the peer's memory without notifying its program; the Send after it says that the data
// is there, and ends the right to write.
func Example_writeWithNotification() {
	client, server := newNode(), newNode()
	defer client.dev.Close()
	defer server.dev.Close()
	connect(client, server)

	// The server offers memory, to this one connection, and expects one message.
	slot := make([]byte, 64)
	offer, err := server.pd.RegMR(slot, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: server.qp})
	must(err)
	message := make([]byte, 16)
	server.receive(1, server.register(message, iwarp.LocalWrite))

	// STag and TO are numbers, which a protocol of the program's own would carry.
	stag, to := offer.STag(), offer.Base()

	data := client.register([]byte("int main(void) { return 0; }\n"), 0)
	must(client.qp.PostSend(&iwarp.SendWR{
		Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.More,
		SGL:  []iwarp.SGE{{Addr: data.Base(), Length: uint32(data.Len()), LKey: data.STag()}},
		STag: stag, TO: to,
	}))
	must(client.qp.PostSend(&iwarp.SendWR{
		ID: 2, Op: iwarp.OpSendInv, Flags: iwarp.Inline, Data: []byte("29 bytes"), InvSTag: stag,
	}))

	wc := server.next()
	fmt.Printf("message: %s\n", message[:wc.ByteLen])
	fmt.Printf("slot: %q\n", slot[:29])
	fmt.Println("taken back:", wc.Inv && wc.InvSTag == offer.STag())
	// Output:
	// message: 29 bytes
	// slot: "int main(void) { return 0; }\n"
	// taken back: true
}

// A Read fetches the peer's memory, and the peer's program has no part in it.
func Example_read() {
	client, server := newNode(), newNode()
	defer client.dev.Close()
	defer server.dev.Close()
	connect(client, server)

	board := server.register([]byte("4 cores, 3 free"), iwarp.RemoteRead)

	view := make([]byte, board.Len())
	sink := client.register(view, iwarp.LocalWrite|iwarp.RemoteWrite) // hardware wants RemoteWrite for the sink of a Read
	must(client.qp.PostSend(&iwarp.SendWR{
		ID: 1, Op: iwarp.OpRead,
		SGL:  []iwarp.SGE{{Addr: sink.Base(), Length: uint32(len(view)), LKey: sink.STag()}},
		STag: board.STag(), TO: board.Base(),
	}))
	fmt.Println(client.next().ByteLen, "bytes:", string(view))
	// Output:
	// 15 bytes: 4 cores, 3 free
}

// A server that answers each message with the same bytes, until its client hangs up.
func Example_server() {
	server := newNode()
	defer server.dev.Close()
	ctx := context.Background()
	l, err := server.dev.Listen(ctx, "127.0.0.1:0", nil)
	must(err)
	defer l.Close()

	served := make(chan struct{})
	go func() {
		defer close(served)
		// Receives are posted before the connection is there: a message that finds
		// none ends the stream.
		buf := make([]byte, 16*64)
		mr := server.register(buf, iwarp.LocalWrite)
		at := func(id uint64, n uint32) []iwarp.SGE {
			return []iwarp.SGE{{Addr: mr.Base() + id*64, Length: n, LKey: mr.STag()}}
		}
		for id := range uint64(16) {
			must(server.qp.PostRecv(&iwarp.RecvWR{ID: id, SGL: at(id, 64)}))
		}
		r, err := l.Accept(ctx)
		must(err)
		must(r.Accept(ctx, server.qp, &iwarp.ConnParam{PrivateData: []byte("echo, at your service")}))
		for {
			must(server.cq.Wait(ctx))
			var wc [1]iwarp.WC
			server.cq.Poll(wc[:])
			if wc[0].Status != iwarp.StatusSuccess {
				return // flushed: the client has hung up
			}
			if wc[0].Op == iwarp.OpRecv {
				must(server.qp.PostSend(&iwarp.SendWR{ID: wc[0].ID, Op: iwarp.OpSend, SGL: at(wc[0].ID, wc[0].ByteLen)}))
				continue
			}
			// The answer has left: its memory is free.
			if err := server.qp.PostRecv(&iwarp.RecvWR{ID: wc[0].ID, SGL: at(wc[0].ID, 64)}); errors.Is(err, iwarp.ErrState) {
				return // the client has hung up
			}
		}
	}()

	client := newNode()
	defer client.dev.Close()
	info, err := client.dev.Dial(ctx, l.Addr().String(), client.qp, nil)
	must(err)
	fmt.Printf("connected to: %s\n", info.PrivateData)
	answer := make([]byte, 64)
	client.receive(1, client.register(answer, iwarp.LocalWrite))
	must(client.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte("hello")}))
	fmt.Printf("answer: %s\n", answer[:client.next().ByteLen])
	must(client.qp.Disconnect(ctx))
	<-served
	// Output:
	// connected to: echo, at your service
	// answer: hello
}
