package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/all"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
)

// expOptions holds the command line of exp.
type expOptions struct {
	size           string
	rounds         int
	seed           uint64
	out, from, doc string
	json           bool
}

func expCommand() *cobra.Command {
	var o expOptions
	c := &cobra.Command{
		Use:   "exp {list | all | NAME...}",
		Short: "Put the questions of the papers to this machine",
		Long: `Runs experiments: comparisons of transports, of ways to wait and to register memory, which
the papers that rdistcc builds on have made. Each one measures its cells once a round, in
shuffled order, and judges claims of shape by the intervals of medians: a claim holds,
fails, or is not to be told here.

NAME is a name or number that list shows; all runs every one. Progress goes to standard
error. --out DIR keeps the raw samples (NAME.jsonl) and pictures (SVG), --from DIR judges
samples that were kept, --doc rewrites the generated parts of lab/experiments.md.

Exit status: 0 whatever the verdicts are.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exitError{exitArguments, errors.New("exp: list, all or a name is needed")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "list" && len(args) == 1 {
				return listExperiments(cmd.OutOrStdout())
			}
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.size, "size", "ci", "ci (everything in 20 minutes on 2 cores) or full")
	f.IntVar(&o.rounds, "rounds", 0, "rounds; 0: as many as the size has for the experiment")
	f.Uint64Var(&o.seed, "seed", 1, "shuffles the cells of each round")
	f.StringVar(&o.out, "out", "", "`DIR` for raw samples and pictures")
	f.StringVar(&o.from, "from", "", "read the samples in `DIR` and measure nothing")
	f.StringVar(&o.doc, "doc", "", "`file` whose generated parts are rewritten; all experiments are needed")
	f.BoolVar(&o.json, "json", false, "print one JSON object for each experiment")
	c.AddCommand(&cobra.Command{Use: peer.Args[1], Short: "Be the other side of an experiment", Hidden: true, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return peer.Serve(cmd.Context(), os.Stdin, os.Stdout, all.Handlers())
		}})
	return c
}

func listExperiments(w io.Writer) error {
	for _, e := range all.Experiments {
		if _, err := fmt.Fprintf(w, "%-4s %-18s %s\n", e.ID, e.Name, e.Question); err != nil {
			return err
		}
	}
	return nil
}

// run runs the subcommand.
func (o *expOptions) run(ctx context.Context, names []string, stdout, stderr io.Writer) error {
	size, err := exp.ParseSize(o.size)
	if err != nil {
		return &exitError{exitArguments, err}
	}
	chosen, err := experiments(names)
	if err != nil {
		return &exitError{exitArguments, err}
	}
	if o.doc != "" && len(chosen) != len(all.Experiments) {
		return &exitError{exitArguments, errors.New("--doc: the document has all experiments: exp all")}
	}
	var found []*exp.Results
	for _, e := range chosen {
		r, err := o.one(ctx, e, size, stderr)
		if err != nil {
			return err
		}
		if o.json {
			err = r.PrintJSON(stdout)
		} else {
			err = r.Print(stdout)
		}
		if err == nil && o.out != "" {
			err = r.Draw(o.out)
		}
		if err != nil {
			return err
		}
		found = append(found, r)
	}
	if o.doc == "" {
		return nil
	}
	return exp.WriteDocument(o.doc, found, fmt.Sprintf("rdistcc-perf exp all --size %s", found[0].Header.Size))
}

// experiments returns those that the command line names.
func experiments(names []string) (chosen []*exp.Experiment, err error) {
	if len(names) == 1 && names[0] == "all" {
		return all.Experiments, nil
	}
	for _, n := range names {
		e := all.Find(n)
		if e == nil {
			return nil, fmt.Errorf("no experiment %q: see rdistcc-perf exp list", n)
		}
		chosen = append(chosen, e)
	}
	return chosen, nil
}

// one runs an experiment, or reads what an earlier run has found.
func (o *expOptions) one(ctx context.Context, e *exp.Experiment, size exp.Size, stderr io.Writer) (*exp.Results, error) {
	name := e.Name + ".jsonl"
	if o.from != "" {
		f, err := os.Open(filepath.Join(o.from, name))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r, err := exp.Read(f, all.Find)
		if err != nil {
			err = fmt.Errorf("%s: %w", f.Name(), err)
		}
		return r, err
	}
	run := exp.Options{Size: size, Rounds: o.rounds, Seed: o.seed, Say: func(format string, args ...any) { say(stderr, format, args...) }}
	if o.out == "" {
		return exp.Run(ctx, e, run)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(o.out, name))
	if err != nil {
		return nil, err
	}
	run.Raw = f
	r, err := exp.Run(ctx, e, run)
	return r, errors.Join(err, f.Close())
}
