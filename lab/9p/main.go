// 9p lets Linux mount a directory of this machine, to read it, by 9P over RDMA:
//
//	go run ./lab/9p --listen 192.0.2.1:5640 --allow 192.0.2.0/24 /usr/share/doc
//	mount -t 9p -o trans=rdma,port=5640,version=9p2000.L,ro 192.0.2.1 /mnt      # on a machine with siw or an iWARP adapter
//
// It is an example of a server on pkg/iwarp: serve.go has all that it takes of RDMA, which is Sends and nothing else, as the
// kernel's client wants it. Packages p9 and export know nothing of RDMA.
//
// 9P has no login and no encryption: whoever may connect reads all that this program's user can read below the directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdistcc/rdistcc/lab/9p/export"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run is the program. It says where it listens, and what becomes of each client, a line each.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	s := &server{log: log.New(stderr, "9p: ", 0)}
	f := flag.NewFlagSet("9p", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: 9p [--listen ADDR:PORT] [--allow NETWORK]... DIRECTORY")
		f.PrintDefaults()
	}
	addr := f.String("listen", "127.0.0.1:5640", "address to listen on; port 0 picks one")
	f.Func("allow", "network, such as 192.0.2.0/24, that may connect; may be repeated (default this machine)", func(v string) error {
		p, err := netip.ParsePrefix(v)
		s.allow = append(s.allow, p)
		return err
	})
	if err := f.Parse(args); err != nil {
		return exitUsage
	}
	if f.NArg() != 1 {
		f.Usage()
		return exitUsage
	}
	if err := s.run(ctx, *addr, f.Arg(0)); err != nil && ctx.Err() == nil {
		s.log.Print(err)
		return exitFailed
	}
	return 0
}

func (s *server) run(ctx context.Context, addr, dir string) (err error) {
	if s.tree, err = export.Open(dir); err != nil {
		return err
	}
	defer s.tree.Close()
	if s.dev, err = iwarp.Open(iwarp.Config{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.dev.Close()) }()
	l, err := s.listen(ctx, addr)
	if err != nil {
		return err
	}
	defer l.Close()
	s.log.Printf("%s: listening on %v", dir, l.Addr())
	return s.serve(ctx, l)
}
