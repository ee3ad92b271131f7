package rsocket_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/rdistcc/rdistcc/lab/rsocket"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// An echo server. Its client is a Go program here; it could as well be
//
//	LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so nc.traditional HOST PORT
func Example() {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	ctx := context.Background()
	l, err := rsocket.Listen(ctx, dev, "127.0.0.1:0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c)
	}()

	c, err := rsocket.Dial(ctx, dev, l.Addr().String(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	c.CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	// Output: hello <nil>
}
