// Command rdistcc-cm is the connection manager: it keeps the connections of a
// build host to the compile hosts, and serves the wrappers of all build commands.
// Its subcommand ctl answers what people ask about it. By the name ccache-storage-rdistcc it is a storage helper of
// ccache's.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/ctl"
	_ "github.com/rdistcc/rdistcc/internal/entrypoint" // where it begins
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/release"
	"github.com/rdistcc/rdistcc/internal/storage"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// version is set by the Makefile.
var version string

var build = release.Of(version)

// exitInUse means that an address to listen on is taken.
const exitInUse = 102

func main() {
	if len(os.Args) > 0 && filepath.Base(os.Args[0]) == storage.Name {
		os.Exit(storage.Run(os.Args[1:], build.Version, os.Getenv, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:]))
}

// run executes the command line and returns the exit status.
func run(args []string) int {
	if len(args) > 0 && args[0] == "ctl" {
		return ctl.Run(args[1:], build.Version, os.Stdout, os.Stderr)
	}
	root := rootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "rdistcc-cm:", err)
	tellFailed(exitCode(err), err)
	return exitCode(err)
}

// usageError marks a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	var setting *config.Error
	switch {
	case errors.As(err, &usage), errors.As(err, &setting):
		return reason.ExitArguments
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, socket.ErrInUse):
		return exitInUse
	}
	return reason.ExitGeneral
}

// Which managers --replace replaces: any, or one that speaks an older version of the
// wrappers' protocol.
const (
	replaceAny   = "any"
	replaceOlder = "older"
)

// flags lists the daemon's flags and the settings that they override.
var flags = []struct{ name, key, usage string }{
	{"socket", "manager.socket", "serve wrappers on the socket at `PATH` (default cm.sock in the state directory)"},
	{"hosts", "hosts", "compile hosts for commands that name none, a `LIST` as in RDISTCC_HOSTS"},
	{"http", "http.manager", "serve metrics and the status page on `ADDR:PORT`"},
	{"wait", "wait", "wait for messages of hosts `HOW`: loan, event, poll, hybrid or hybrid:DURATION; the last three spin"},
	{"carrier", "manager.carrier", "let sources travel by `CARRIER`: auto, write, eager, pull"},
	{"idle-exit", "manager.idle-exit", "exit after `DUR` without a compile; 0 = never"},
	{"psk-file", "auth.psk-file", "authenticate both sides with the shared key in `FILE`"},
	{"tls-cert", "auth.tls.cert", "use mutual TLS 1.3, with the certificate in `FILE`"},
	{"tls-key", "auth.tls.key", "private key for --tls-cert, a `FILE`"},
	{"tls-ca", "auth.tls.ca", "`FILE` with the CA that signs the other side's certificate"},
	{"capture", "manager.capture", "write the iWARP connections to the pcapng `FILE`, without what they carry"},
	{"log-file", "log.file", "log to `FILE` instead of stderr"},
	{"log-level", "log.level", "log `LEVEL`: debug, info, warn, error"},
}

func rootCommand() *cobra.Command {
	c := &cobra.Command{
		Use:           "rdistcc-cm",
		Short:         "connection manager of rdistcc",
		Long:          "rdistcc-cm keeps connections to the compile hosts open and serves the rdistcc commands of a build.\nrdistcc starts it when it is not running.",
		Version:       build.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	path := c.Flags().String("config", "", "read settings from `FILE`")
	replace := c.Flags().String("replace", "", "take over the socket from a running manager, which finishes its jobs; `WHICH` is any or older")
	c.Flags().Lookup("replace").NoOptDefVal = replaceAny
	values := make([]*string, len(flags))
	for i, f := range flags {
		values[i] = c.Flags().String(f.name, "", f.usage)
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	c.Args = func(c *cobra.Command, args []string) error {
		if err := cobra.NoArgs(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		load := func() (*config.Config, error) {
			return loadConfig(*path, func(cfg *config.Config) error {
				for i, f := range flags {
					if !c.Flags().Changed(f.name) {
						continue
					}
					if err := cfg.Set(f.key, "--"+f.name, config.Absolute(f.key, *values[i])); err != nil {
						return err
					}
				}
				return nil
			})
		}
		switch *replace {
		case "", replaceAny, replaceOlder:
		default:
			return usageError{fmt.Errorf("--replace=%s: want any or older", *replace)}
		}
		return serve(load, *path, *replace)
	}
	return c
}

// loadConfig reads the configuration file and applies override to it.
func loadConfig(path string, override func(*config.Config) error) (*config.Config, error) {
	if path == "" {
		path, _ = config.Locate(os.Getenv)
	}
	cfg, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	if err := override(cfg); err != nil {
		return nil, err
	}
	return cfg, cfg.Validate()
}
