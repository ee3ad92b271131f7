package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/compdb"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/costs/trial"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
)

// Defaults of rdistcc costs --try-pch.
const (
	tryHeaders = "10" // of a precompiled header, at most
	tryUnits   = 3    // those that take most time, if none is named
)

// tries is what an experiment with precompiled headers is asked for.
type tries struct {
	headers  int
	commands string      // a compilation database; empty: one that is near
	units    []string    // sources
	command  *trial.Unit // of the one unit, as it was given
}

// tryPCH makes precompiled headers of what the costs say, and measures what they save.
func (c *ctl) tryPCH(t tries, days float64, asJSON bool) error {
	r, _, err := c.costs(nil, days)
	if err != nil {
		return err
	}
	units, err := t.of(r)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop() // its directory is removed before this program ends
	results, failed := []trial.Result{}, 0
	for _, u := range units {
		result, err := trial.Try(ctx, u, t.headers, r.Each())
		if ctx.Err() != nil {
			return failf(reason.ExitGeneral, "interrupted: nothing is left of the experiment")
		}
		if err != nil {
			result.Error = plain(err.Error())
			failed++
		}
		if results = append(results, result); !asJSON {
			if err := c.print(tryText(&result, t.headers)); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := c.marshal(results); err != nil {
			return err
		}
	}
	if failed == len(results) {
		return failf(reason.ExitGeneral, "no precompiled header could be tried")
	}
	return nil
}

// of returns the units of the experiment: the command that was given, the sources that were, or those that take most time.
func (t *tries) of(r *costs.Report) (units []trial.Unit, err error) {
	if t.command != nil {
		return []trial.Unit{*t.command}, nil
	}
	sources, most := t.units, len(t.units)
	if most == 0 {
		most = tryUnits
		for i := range r.Units {
			sources = append(sources, r.Units[i].Source)
		}
	}
	var broken error                       // the first database that cannot be read
	databases := make(map[string]database) // by name
	for _, s := range sources {
		if len(units) == most {
			break
		}
		source, err := filepath.Abs(s)
		if err != nil {
			return nil, failf(reason.ExitIO, "%v", err)
		}
		u, err := t.entry(databases, source)
		switch {
		case err == nil:
			units = append(units, u)
		case len(t.units) > 0 || t.commands != "" && !errors.Is(err, errNoEntry):
			return nil, err
		case broken == nil && !errors.Is(err, errNoEntry):
			broken = err
		}
	}
	if len(units) == 0 && broken != nil {
		return nil, broken
	}
	if len(units) == 0 {
		return nil, failf(reason.ExitGeneral, "how units are compiled is not kept: name the compile_commands.json with --commands FILE, or give a command, as in: rdistcc costs --try-pch -- g++ -O2 -c a.cc")
	}
	return units, nil
}

// errNoEntry is that a database has no command of a unit.
var errNoEntry = errors.New("no entry")

// maxDatabase bounds a compilation database, in bytes.
const maxDatabase = 1 << 30

// database is how sources are compiled, by their absolute names. Of several entries of one, it has the first.
type database map[string]trial.Unit

// entry finds how a source is compiled: in the database that was named, or in compile_commands.json or build/compile_commands.json
// of the directory of the source or the nearest one above it.
func (t *tries) entry(databases map[string]database, source string) (trial.Unit, error) {
	names := []string{t.commands}
	if t.commands == "" {
		names = nil
		for dir := filepath.Dir(source); ; dir = filepath.Dir(dir) {
			names = append(names, filepath.Join(dir, "compile_commands.json"), filepath.Join(dir, "build", "compile_commands.json"))
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	for _, name := range names {
		d, ok := databases[name]
		if !ok {
			var err error
			if d, err = readDatabase(name); err != nil && (t.commands != "" || !errors.Is(err, fs.ErrNotExist)) {
				return trial.Unit{}, failf(reason.ExitIO, "%v", err)
			}
			databases[name] = d
		}
		if d == nil {
			continue
		}
		if u, ok := d[source]; ok {
			return u, nil
		}
		return trial.Unit{}, &exitError{code: reason.ExitGeneral, line: fmt.Sprintf("%s has no command of %s; give it, as in: rdistcc costs --try-pch -- g++ -O2 -c a.cc", name, plain(source)), cause: errNoEntry}
	}
	return trial.Unit{}, &exitError{code: reason.ExitGeneral, line: fmt.Sprintf("there is no compile_commands.json for %s: name it with --commands FILE, or give the command, as in: rdistcc costs --try-pch -- g++ -O2 -c a.cc", plain(source)), cause: errNoEntry}
}

// readDatabase reads a compilation database.
func readDatabase(name string) (database, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxDatabase {
		return nil, fmt.Errorf("%s: no compilation database", name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []struct {
		Directory, File, Command string
		Arguments                []string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: no compilation database: %w", name, err)
	}
	d := make(database, len(list))
	for _, e := range list {
		if !filepath.IsAbs(e.Directory) { // as some write it
			at, err := filepath.Abs(filepath.Dir(name))
			if err != nil {
				return nil, err
			}
			e.Directory = filepath.Join(at, e.Directory)
		}
		file := e.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(e.Directory, file)
		}
		words, ok := e.Arguments, len(e.Arguments) > 0
		if !ok {
			words, ok = compdb.Split(e.Command)
		}
		if file = filepath.Clean(file); ok && d[file].Words == nil {
			d[file] = trial.Unit{Dir: e.Directory, Words: words}
		}
	}
	return d, nil
}

// tryText formats what came of an experiment.
func tryText(r *trial.Result, most int) []byte {
	var out bytes.Buffer
	dir, _ := os.Getwd() // without one, all names are absolute
	name := figure.Near(dir, r.Unit)
	fmt.Fprintf(&out, "%s: ", name)
	switch {
	case len(r.Headers) > 0:
		fmt.Fprintf(&out, "a precompiled header of %s (of at most %d)\n", figure.Count(len(r.Headers), "header"), most)
		out.Write(indent(table(func(w io.Writer) {
			fmt.Fprintln(w, "HEADER\tFILES\tESTIMATED")
			for _, h := range r.Headers {
				fmt.Fprintf(w, "%s\t%d\t%s\n", h.Name, h.Files, known(h.Estimated > 0, figure.Digits(h.Estimated)))
			}
		})))
	default:
		out.WriteString("no precompiled header\n")
	}
	for _, l := range r.Left {
		fmt.Fprintf(&out, "  left out: %s: %s\n", l.Name, l.Why)
	}
	if r.Error != "" {
		fmt.Fprintf(&out, "  not measured: %s\n", r.Error)
		return out.Bytes()
	}
	verb, saves := "saves", r.Saves()
	if saves < 0 {
		verb, saves = "costs", -saves
	}
	fmt.Fprintf(&out, "  %s without, %s of it to parse; %s with it: %s %s (%s)", figure.Digits(r.Without), figure.Digits(r.Parsed), figure.Digits(r.With), verb, figure.Digits(saves), shareOf(saves, r.Without))
	switch {
	case r.Estimated > r.Parsed:
		fmt.Fprintf(&out, ";\n  estimated %s: with what units make of these headers, which each still does", figure.Digits(r.Estimated))
	case r.Estimated > 0:
		fmt.Fprintf(&out, "; estimated %s (%s)", figure.Digits(r.Estimated), shareOf(r.Estimated, r.Without))
	}
	fmt.Fprintf(&out, "\n  made in %s, %s", figure.Digits(r.Made), figure.Bytes(uint64(r.Bytes)))
	if r.Saves() > 0 {
		fmt.Fprintf(&out, ": it pays off from %s like this on", figure.Count(int(max(r.Made+r.Saves()-1, 0)/max(r.Saves(), time.Nanosecond)), "unit"))
	}
	out.WriteString("\n")
	return out.Bytes()
}
