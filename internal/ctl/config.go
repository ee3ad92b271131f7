package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/textfile"
)

// shownSetting is a setting in force, and what overrides it here.
type shownSetting struct {
	config.Setting
	Environment string `json:"environment,omitempty"` // NAME=VALUE, for commands of this shell
	List        string `json:"list,omitempty"`        // of hosts: the file that supplies them instead
}

func (c *ctl) configCommand() *cobra.Command {
	var origins, asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the effective settings and where each comes from",
		Long: "Shows the effective settings as YAML: those of the running connection manager, or those that it would start\n" +
			"with. With --origins, each line says where its value comes from (a flag, a line of the file, or the default) and\n" +
			"which environment variable of this shell overrides it. Variables that look like rdistcc's or distcc's but\n" +
			"have no effect are listed as well.",
		Example: "  rdistcc config --origins\n  rdistcc config > ~/.config/rdistcc/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var settings []config.Setting
			_, err := c.ask(&settings, "config")
			running := err == nil
			switch {
			case errors.Is(err, errNoManager):
				path, _ := config.Locate(c.getenv)
				cfg, err := config.Load(path)
				if err != nil {
					return failf(reason.ExitArguments, "%v", err)
				}
				settings = cfg.Settings()
			case err != nil:
				return err
			default:
				c.warnSettings()
			}
			shown := c.overridden(settings)
			if asJSON {
				return c.marshal(shown)
			}
			text := settingsText(shown, origins)
			if origins {
				text = append(c.originsHead(running), text...)
			}
			return c.print(text)
		},
	}
	cmd.Flags().BoolVar(&origins, "origins", false, "show where each value comes from")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// overridden adds to each setting the variable that overrides it in this shell.
func (c *ctl) overridden(settings []config.Setting) []shownSetting {
	shown := make([]shownSetting, len(settings))
	for i, s := range settings {
		shown[i].Setting = s
		for _, v := range variables {
			value, set := c.lookup(v.name)
			if set && v.key == s.Key && (v.overrides == nil || v.overrides(value)) {
				shown[i].Environment = v.name + "=" + value
				break
			}
		}
		if s.Key == "hosts" && s.Value == "[]" && shown[i].Environment == "" {
			if _, where, err := hostlist.FromFiles(hostlist.Files(c.getenv("RDISTCC_DIR"), c.getenv), textfile.Optional(hostlist.MaxText)); err == nil {
				shown[i].List = where
			}
		}
	}
	return shown
}

// variables lists those that rdistcc reads, with the setting that each overrides; the first of several for
// one setting counts.
var variables = []struct {
	name, key string
	overrides func(value string) bool // nil: any value does
}{
	{"RDISTCC_HOSTS", "hosts", nil},
	{"DISTCC_HOSTS", "hosts", nil},
	{"RDISTCC_FALLBACK", "fallback.allow", notEmpty},
	{"RDISTCC_MODE", "fallback.allow", func(v string) bool { return v == "remote" }},
	{"RDISTCC_SKIP_LOCAL_RETRY", "diagnostics", isOn},
	{"RDISTCC_IO_TIMEOUT", "limits.io-timeout", isOn},
	{"RDISTCC_BACKOFF_PERIOD", "scheduler.backoff", notEmpty},
	{"RDISTCC_CM_SOCKET", "manager.socket", notEmpty},
	{"RDISTCC_DIR", "manager.socket", notEmpty},
	{"RDISTCC_CONFIG", "", nil}, {"RDISTCC_BUILD", "", nil}, {"RDISTCC_REPORT", "", nil}, {"RDISTCC_TRACE", "", nil},
	{"RDISTCC_LOG", "", nil}, {"RDISTCC_VERBOSE", "", nil}, {"DISTCC_DIR", "", nil},
}

func notEmpty(v string) bool { return v != "" }
func isOn(v string) bool     { return v != "" && v != "0" }

// originsHead says which file the following lines come from, and which variables nothing reads.
func (c *ctl) originsHead(running bool) []byte {
	var b bytes.Buffer
	path, explicit := config.Locate(c.getenv)
	switch {
	case explicit:
		fmt.Fprintf(&b, "# configuration file: %s, by RDISTCC_CONFIG\n", path)
	case path != "":
		fmt.Fprintf(&b, "# configuration file: %s\n", path)
	default:
		b.WriteString("# no configuration file\n")
	}
	if running {
		b.WriteString("# in force in the connection manager that runs\n")
	} else {
		b.WriteString("# no connection manager runs: one would start with\n")
	}
	for _, kv := range c.environ() {
		name, value, _ := strings.Cut(kv, "=")
		own, foreign := strings.HasPrefix(name, "RDISTCC_"), strings.HasPrefix(name, "DISTCC_")
		if !own && !foreign || isVariable(name) {
			continue
		}
		hint := ""
		switch near := nearVariable(name); {
		case foreign && isVariable("R"+name):
			hint = "; it is distcc's, rdistcc has R" + name
		case foreign:
			hint = "; it is distcc's"
		case near != "":
			hint = "; did you mean " + near + "?"
		}
		fmt.Fprintf(&b, "# %s is not read%s\n", oneLine(name+"="+value), hint)
	}
	return b.Bytes()
}

func isVariable(name string) bool {
	for _, v := range variables {
		if v.name == name {
			return true
		}
	}
	return false
}

// nearVariable returns the variable that name was probably meant to be, or "".
func nearVariable(name string) string {
	var names []string
	for _, v := range variables {
		names = append(names, v.name)
	}
	return config.Nearest(name, names)
}

// oneLine makes text from the environment fit for a comment.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// settingsText writes settings as a yaml file with the same effect.
func settingsText(settings []shownSetting, origins bool) []byte {
	return table(func(w io.Writer) {
		section := ""
		for _, s := range settings {
			head, key, nested := strings.Cut(s.Key, ".")
			line := s.Key + ": " + s.Value
			if nested {
				if head != section {
					section = head
					fmt.Fprintf(w, "%s:\n", head)
				}
				line = "  " + key + ": " + s.Value
			}
			if origins {
				line += "\t# " + s.Origin
				switch {
				case s.Environment != "":
					line += "; overridden here by " + oneLine(s.Environment)
				case s.List != "":
					line += "; they are those of " + oneLine(s.List)
				}
			}
			fmt.Fprintln(w, line)
		}
	})
}
