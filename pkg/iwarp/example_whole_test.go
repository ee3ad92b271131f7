package iwarp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// newEnd opens a device and makes what one connection needs, and registers memory in which the peer may write.
func newEnd(memory []byte) (dev iwarp.Device, cq iwarp.CQ, qp iwarp.QP, mr iwarp.MR) {
	dev, err := iwarp.Open(iwarp.Config{})
	try(err)
	pd, err := dev.AllocPD()
	try(err)
	cq, err = dev.CreateCQ(16)
	try(err)
	qp, err = pd.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 8, MaxRecv: 8})
	try(err)
	mr, err = pd.RegMR(memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	try(err)
	try(qp.PostRecv(&iwarp.RecvWR{})) // for the message that says that all is there
	return dev, cq, qp, mr
}

func try(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A program that puts bytes into the memory of another one. In life they are two programs, and the goroutine is the server.
func Example() {
	ctx := context.Background()
	theirs := make([]byte, 32)
	server, arrived, serverQP, window := newEnd(theirs)
	defer server.Close()
	listener, err := server.Listen(ctx, "127.0.0.1:0", nil)
	try(err)
	accepted := make(chan error, 1)
	go func() {
		request, err := listener.Accept(ctx)
		if err == nil {
			err = request.Accept(ctx, serverQP, nil)
		}
		accepted <- err
	}()

	client, _, qp, source := newEnd([]byte("hello, memory of another process"))
	defer client.Close()
	_, err = client.Dial(ctx, listener.Addr().String(), qp, nil)
	try(err)
	try(<-accepted)
	from := []iwarp.SGE{{Addr: source.Base(), Length: uint32(source.Len()), LKey: source.STag()}}
	// A protocol of the programs' own would tell the client the window's STag and address.
	try(qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, SGL: from, STag: window.STag(), TO: window.Base()}))
	try(qp.PostSend(&iwarp.SendWR{Op: iwarp.OpSend}))

	try(arrived.Wait(ctx)) // for that Send, behind which the Write is in place
	fmt.Printf("%s\n", theirs)
	// Output: hello, memory of another process
}
