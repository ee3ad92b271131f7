package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/capture"
)

// captureKey is the context key of the *capture.File of --capture.
type captureKey struct{}

// captureFlags are the same for all subcommands.
type captureFlags struct {
	file    string
	limit   sizeFlag
	payload bool
}

func (s *captureFlags) add(f *pflag.FlagSet) {
	s.limit = capture.DefaultLimit
	f.StringVar(&s.file, "capture", "", "write this side's iWARP connections to this pcapng `FILE`, which Wireshark decodes; what messages carry is zeros in it")
	f.Var(&s.limit, "capture-limit", "end --capture before the file is longer than this many bytes")
	f.BoolVar(&s.payload, "capture-payload", false, "have --capture record what messages carry, too")
}

// open makes the file for c, if one is asked for, and adds it to c's context.
func (s *captureFlags) open(c *cobra.Command, stderr io.Writer) (*capture.File, error) {
	words := c.CommandPath()
	switch {
	case s.file == "" && (s.payload || c.Flags().Changed("capture-limit")):
		return nil, errors.New("--capture-limit and --capture-payload belong to --capture FILE")
	case s.file == "":
		return nil, nil
	case strings.Contains(words, " tcp_"):
		return nil, fmt.Errorf("--capture: %s has no iWARP to record", c.Name())
	case strings.Contains(words, " exp"):
		return nil, errors.New("--capture: experiments record nothing: take one of the tests")
	case s.limit < capture.MinLimit:
		return nil, fmt.Errorf("--capture-limit %v: at least 1MiB", &s.limit)
	}
	f, err := capture.Create(s.file, capture.Options{
		Limit: int64(s.limit), Payload: s.payload, Log: func(line string) { say(stderr, "%s", line) },
	})
	if err != nil {
		return nil, err
	}
	c.SetContext(context.WithValue(c.Context(), captureKey{}, f))
	return f, nil
}

// deviceConfig returns the configuration of a software device with this identity, which is recorded if that is asked for.
func deviceConfig(ctx context.Context, id *identity.Identity) iwarp.Config {
	c := iwarp.Config{Dial: id.Dial, Listen: id.Listen}
	if f, ok := ctx.Value(captureKey{}).(*capture.File); ok {
		c.Dial, c.Listen = f.Dial(c.Dial), f.Listen(c.Listen)
	}
	return c
}
