package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/rdistcc/rdistcc/internal/farm"
)

// monitor starts Prometheus beside the farm, if it is installed.
func monitor(ctx context.Context, f *farm.Farm) (string, error) {
	p, err := f.Monitor(ctx, "deploy")
	if missing := new(exec.Error); errors.As(err, &missing) {
		return "", nil
	}
	return "http://" + p.HTTP, err
}

// describe says where to look at what is running.
func describe(w io.Writer, f *farm.Farm, prometheus string) {
	fmt.Fprintln(w, "\nStill running, until you press Ctrl-C:")
	for _, p := range append(f.Daemons, f.Manager) {
		fmt.Fprintf(w, "  %-12s http://%s/  http://%s/metrics\n", p.Name, p.HTTP, p.HTTP)
	}
	if prometheus == "" {
		fmt.Fprintln(w, "  Prometheus is not installed, so there is nothing to draw graphs from (on Debian: make deps)")
	} else {
		fmt.Fprintf(w, "  %-12s %s/  (a data source for deploy/grafana/rdistcc.json)\n", "prometheus", prometheus)
	}
	fmt.Fprintf(w, "Compile with them: RDISTCC_DIR=%s %s gcc -c hello.c\n", f.Dir, f.Wrapper)
}
