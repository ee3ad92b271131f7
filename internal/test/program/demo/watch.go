package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

// grafanaSource is where deploy/grafana expects Prometheus; the demo's listens there if possible, so that a
// Grafana shows its data at once.
const grafanaSource = "127.0.0.1:9090"

// monitor starts Prometheus beside the farm, if it is installed, and returns the address of a page with the
// dashboard's graphs.
func monitor(ctx context.Context, f *farm.Farm) (graphs string, err error) {
	page := grafanaSource
	l, err := net.Listen("tcp", page)
	if err != nil {
		page = "" // taken: use any other
	} else {
		l.Close()
	}
	p, err := f.Monitor(ctx, "deploy", page)
	if missing := new(exec.Error); errors.As(err, &missing) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	target, err := graphPage(ctx, "http://"+p.HTTP)
	if err != nil {
		return "", err
	}
	// The address is thousands of bytes long, so what is printed redirects to it.
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return "", err
	}
	server := &http.Server{Handler: http.RedirectHandler(target, http.StatusFound)}
	go func() { _ = server.Serve(l) }() // until the demo ends
	return "http://" + l.Addr().String() + "/", nil
}

// graphPage returns the address of Prometheus's own page with a graph for each query of the dashboard.
func graphPage(ctx context.Context, prometheus string) (string, error) {
	queries, err := farm.Dashboard("deploy/grafana/rdistcc.json")
	if err != nil {
		return "", err
	}
	// Its path differs between versions; the root redirects there.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, prometheus+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	at, err := resp.Location()
	if err != nil {
		return "", fmt.Errorf("prometheus has no graphs: %w", err)
	}
	args := url.Values{}
	n := 0
	for _, q := range queries {
		if q.Stat || q.Label != "" {
			continue
		}
		prefix := fmt.Sprintf("g%d.", n)
		args.Set(prefix+"expr", q.Expr)
		args.Set(prefix+"tab", "0")
		args.Set(prefix+"range_input", "15m")
		n++
	}
	at.RawQuery = args.Encode()
	return at.String(), nil
}

// describe prints where to look at what is running.
func describe(w io.Writer, f *farm.Farm, graphs string) {
	fmt.Fprintln(w, "\nStill running, until you press Ctrl-C:")
	for _, p := range append(f.Daemons, f.Manager) {
		fmt.Fprintf(w, "  %-12s http://%s/  http://%s/metrics\n", p.Name, p.HTTP, p.HTTP)
	}
	if graphs == "" {
		fmt.Fprintln(w, "  Prometheus is not installed, so there is nothing to draw graphs from (on Debian: make deps)")
	} else {
		fmt.Fprintf(w, "  %-12s %s  (for Grafana see docs/usage.md)\n", "graphs", graphs)
	}
	fmt.Fprintf(w, "Compile with them: RDISTCC_DIR=%s %s gcc -c hello.c\n", f.Dir, f.Wrapper)
}
