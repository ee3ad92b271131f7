package ctl

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/migrate"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/textfile"
)

// maxForeign is the longest file of another program that is read, in bytes.
const maxForeign = 1 << 20

func (c *ctl) migrateCommand() *cobra.Command {
	names := strings.Join(migrate.Programs(), ", ")
	return &cobra.Command{
		Use:   "migrate PROGRAM",
		Short: "Show what to change when coming from distcc, icecream or sccache",
		Long: "Shows what becomes of the settings of another program that are in force here: its variables in this shell, and its\n" +
			"files. PROGRAM is one of " + names + ". Nothing is changed. docs/build-systems.md has the rest.",
		Example:   "  rdistcc migrate distcc",
		Args:      one("PROGRAM"),
		ValidArgs: migrate.Programs(),
		RunE: func(_ *cobra.Command, args []string) error {
			s := &migrate.System{Getenv: c.lookup, Home: c.getenv("HOME"), Read: func(path string) (string, bool) {
				text, _, err := textfile.Read(path, maxForeign)
				return string(text), err == nil
			}}
			settings, steps, ok := migrate.From(args[0], s)
			if !ok {
				return failf(reason.ExitArguments, "migrate: %s is not known; the programs are %s", args[0], names)
			}
			var b bytes.Buffer
			if len(settings) == 0 {
				fmt.Fprintf(&b, "No settings of %s are in force here.\n", args[0])
			} else {
				b.Write(table(func(w io.Writer) {
					fmt.Fprintln(w, "NOW\tWITH RDISTCC\tNOTE")
					for _, a := range settings {
						fmt.Fprintf(w, "%s\t%s\t%s\n", a.Setting, cmp.Or(a.Becomes, "-"), a.Note)
					}
				}))
			}
			b.WriteString("\n")
			for _, step := range steps {
				fmt.Fprintf(&b, "- %s\n", step)
			}
			return c.print(b.Bytes())
		},
	}
}
