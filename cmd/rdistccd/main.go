// Command rdistccd is the compile daemon: it runs compilers for the managers of
// build hosts.
package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/release"
	"github.com/rdistcc/rdistcc/pkg/worker"
)

// version is set by the Makefile.
var version string

var build = release.Of(version)

// Exit statuses, as documented.
const (
	exitGeneral   = 100
	exitArguments = 101
	exitInUse     = 102
)

func main() {
	worker.RunHelper()
	os.Exit(run(os.Args[1:]))
}

// run executes the command line and returns the exit status.
func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "rdistccd:", err)
		return exitCode(err)
	}
	return 0
}

// usageError marks a command line or a setting that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	var setting *config.Error
	switch {
	case errors.As(err, &usage), errors.As(err, &setting):
		return exitArguments
	case errors.Is(err, syscall.EADDRINUSE):
		return exitInUse
	}
	return exitGeneral
}

// flags lists the flags and the settings that they override.
var flags = []struct {
	name, key, usage string
	many             bool
}{
	{"listen", "daemon.listen", "accept jobs on `ADDR:PORT`; may be repeated", true},
	{"provider", "daemon.provider", "RDMA `PROVIDER`: soft, ibverbs or ibverbs:DEVICE", false},
	{"wait", "wait", "wait for messages `HOW`: loan, event, poll, hybrid or hybrid:DURATION; the last three spin", false},
	{"carrier", "daemon.carriers", "accept sources that travel by `CARRIER`: write, eager, pull; may be repeated", true},
	{"jobs", "daemon.jobs", "run `N` compiles at a time; 0 = one per core", false},
	{"nice", "daemon.nice", "run compilers with nice `LEVEL`", false},
	{"allow", "daemon.allow", "accept jobs only from this `NETWORK` (10.0.0.0/8) and from this machine, on top of authentication; may be repeated", true},
	{"psk-file", "auth.psk-file", "authenticate both sides with the shared key in `FILE`", false},
	{"tls-cert", "auth.tls.cert", "use mutual TLS 1.3, with the certificate in `FILE`", false},
	{"tls-key", "auth.tls.key", "private key for --tls-cert, a `FILE`", false},
	{"tls-ca", "auth.tls.ca", "`FILE` with the CA that signs the other side's certificate", false},
	{"distcc", "distcc.listen", "serve clients of distcc too, on `ADDR:PORT`, which is 3632 for them; may be repeated", true},
	{"distcc-allow", "distcc.allow", "serve clients of distcc from this `NETWORK` and this machine; may be repeated", true},
	{"executor", "cluster.executor", "compile nothing here: hand all jobs to the cluster at `URL`, as grpcs://HOST[:PORT][/INSTANCE], by the Remote Execution API", false},
	{"announce", "discovery.mdns", "announce this daemon on the local network by mDNS", false},
	{"sandbox", "sandbox", "confine compiles, `MODE` is auto (with all that the system offers), strict (accept no jobs with less than is needed) or off", false},
	{"http", "http.daemon", "serve metrics and the status page on `ADDR:PORT`; \"\" = not at all", false},
	{"user", "daemon.user", "switch to `USER` when started as root", false},
	{"pid-file", "daemon.pid-file", "write the process ID to `FILE`", false},
	{"capture", "daemon.capture", "write the iWARP connections to the pcapng `FILE`, without what they carry", false},
	{"log-file", "log.file", "log to `FILE` instead of stderr", false},
	{"log-level", "log.level", "log `LEVEL`: debug, info, warn, error", false},
}

// yesNo is the value of a flag that the help shows as boolean. It takes any text: checking it
// is left to the configuration.
type yesNo string

func (v *yesNo) String() string     { return string(*v) }
func (v *yesNo) Set(s string) error { *v = yesNo(s); return nil }
func (v *yesNo) Type() string       { return "bool" }

func rootCommand() *cobra.Command {
	c := &cobra.Command{
		Use:           "rdistccd",
		Short:         "compile daemon of rdistcc",
		Long:          "rdistccd compiles for other machines. It runs in the foreground.\nSIGTERM lets running compiles finish and then exits, a second SIGTERM exits at once, SIGHUP reloads the settings.",
		Version:       build.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.NoArgs(c, args); err != nil {
				return usageError{err}
			}
			return nil
		},
	}
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	path := c.Flags().String("config", "", "read settings from `FILE`")
	values := make(map[string]func() []string)
	for _, f := range flags {
		if f.key == "discovery.mdns" {
			v := new(yesNo)
			c.Flags().VarPF(v, f.name, "", f.usage).NoOptDefVal = "true" // allows --announce=false as well
			values[f.name] = func() []string { return []string{string(*v)} }
		} else if f.many {
			v := c.Flags().StringArray(f.name, nil, f.usage)
			values[f.name] = func() []string { return *v }
		} else {
			v := c.Flags().String(f.name, "", f.usage)
			values[f.name] = func() []string { return []string{config.Absolute(f.key, *v)} }
		}
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return serve(func() (*config.Config, error) {
			file := *path
			if file == "" {
				file, _ = config.Locate(os.Getenv)
			}
			cfg, err := config.Load(file)
			if err != nil {
				return nil, err
			}
			for _, f := range flags {
				if !c.Flags().Changed(f.name) {
					continue
				}
				if err := cfg.Set(f.key, "--"+f.name, values[f.name]()...); err != nil {
					return nil, err
				}
			}
			return cfg, cfg.Validate()
		})
	}
	return c
}
