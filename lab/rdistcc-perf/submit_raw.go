package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// formSources is the value of --form for a job that brings its files.
const formSources = "sources"

// rawOptions holds the fields of a body that no word of a command stands for.
type rawOptions struct {
	form, lang, name, cwd, compiler, toolchain string
	words                                      bool
	front                                      uint32
	files, links, dirs, outputs                []string
}

func (o *rawOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.form, "form", "text", "text: preprocessed; sources: with the files that the compile reads")
	f.BoolVar(&o.words, "raw", false, "take no word out of the command")
	f.StringVar(&o.lang, "lang", "", "what -x would say of the source")
	f.StringVar(&o.name, "name", "", "what the source is called")
	f.StringVar(&o.cwd, "cwd", "", "the client's working `directory`; default: this one")
	f.Uint32Var(&o.front, "front", 0, "so many of the first words go in front")
	f.StringVar(&o.compiler, "compiler", "", "where the compiler lies on the client, as the body says it")
	f.StringVar(&o.toolchain, "toolchain", "", "`compiler` of this machine that the job asks for")
	f.StringArrayVar(&o.files, "file", nil, "`NAME=PATH` of a file that the job brings; NAME=@N: the Nth once more")
	f.StringArrayVar(&o.links, "link", nil, "`NAME=TARGET` of a symbolic link that it brings")
	f.StringArrayVar(&o.dirs, "dir", nil, "`name` of a directory that it brings")
	f.StringArrayVar(&o.outputs, "output", nil, "`[KIND:]NAME` of a file that is to come back")
}

// outputKinds lists the words that may precede a name in --output.
var outputKinds = []string{
	unit.OutputObject: "object", unit.OutputAssembly: "assembly", unit.OutputStackUsage: "stack-usage", unit.OutputSide: "side", unit.OutputDependency: "dependency", unit.OutputModule: "module",
}

// fill puts what the flags say into the body, and the files after the text. source is the base name of the text.
func (o *rawOptions) fill(j *rawjob.Job, source string) error {
	b := j.Body
	b.Compiler, b.Cwd, b.Front = o.compiler, o.cwd, o.front
	if o.lang != "" {
		b.Language = o.lang
	}
	if o.name != "" {
		b.Name = o.name
	}
	if len(o.outputs) > 0 {
		b.Outputs = nil
	}
	for _, w := range o.outputs {
		out := unit.Output{Name: w}
		if kind, name, ok := strings.Cut(w, ":"); ok {
			if i := slices.Index(outputKinds, kind); i >= 0 {
				out = unit.Output{Kind: unit.OutputKind(i), Name: name}
			}
		}
		b.Outputs = append(b.Outputs, out)
	}
	if len(b.Outputs) > job.MaxOutputs {
		return fmt.Errorf("--output: at most %d", job.MaxOutputs)
	}
	switch o.form {
	case "text":
		return nil
	case formSources:
	default:
		return fmt.Errorf("--form %s: text or sources", o.form)
	}
	if len(j.Text) > 0 {
		b.Files = append(b.Files, unit.File{Name: source, Len: uint64(len(j.Text))})
	}
	for _, w := range o.files {
		name, path, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("--file %s: NAME=PATH is needed", w)
		}
		f := unit.File{Name: name}
		if n, err := strconv.ParseUint(strings.TrimPrefix(path, "@"), 10, 32); err == nil && path[0] == '@' {
			f.Same = uint32(n)
		} else {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			j.Text = append(j.Text, text...)
			f.Len = uint64(len(text))
		}
		b.Files = append(b.Files, f)
	}
	for _, w := range o.links {
		name, target, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("--link %s: NAME=TARGET is needed", w)
		}
		b.Links = append(b.Links, unit.Link{Name: name, Target: target})
	}
	b.Dirs = o.dirs
	if b.Name == "" && len(b.Files) > 0 {
		b.Name = b.Files[0].Name[strings.LastIndexByte(b.Files[0].Name, '/')+1:]
	}
	return nil
}
