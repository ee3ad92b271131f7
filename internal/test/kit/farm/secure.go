package farm

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Security says how a farm's programs prove their identity, and how its daemons confine compiles.
type Security struct {
	Auth    string // tls, psk, or empty: open, on loopback
	Sandbox string // auto, strict, off, or empty: the daemons' default
}

// Flags defines a flag for each field.
func (s *Security) Flags(f *flag.FlagSet) {
	f.StringVar(&s.Auth, "auth", "", "how the programs prove their identity: tls, psk, or empty for not at all")
	f.StringVar(&s.Sandbox, "sandbox", "", "how daemons confine compiles: auto, strict or off")
}

// Secure makes what s needs, for programs that are started afterwards. It makes certificates as a user
// would, with `rdistcc certs`.
func (f *Farm) Secure(ctx context.Context, s Security) error {
	daemon, manager := "", ""
	switch s.Auth {
	case "":
	case "tls":
		dir := filepath.Join(f.Dir, "certs")
		if out, err := exec.CommandContext(ctx, f.Wrapper, "certs", dir).CombinedOutput(); err != nil {
			return fmt.Errorf("rdistcc certs: %w: %s", err, strings.TrimSpace(string(out)))
		}
		pair := func(name string) string {
			return fmt.Sprintf("auth: {tls: {cert: %[1]s.crt, key: %[1]s.key, ca: %[2]s}}\n", filepath.Join(dir, name), filepath.Join(dir, "ca.crt"))
		}
		daemon, manager = pair("rdistccd"), pair("client")
	case "psk":
		file := filepath.Join(f.Dir, "psk")
		if err := os.WriteFile(file, []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
			return err
		}
		daemon = fmt.Sprintf("auth: {psk-file: %s}\n", file)
		manager = daemon
	default:
		return fmt.Errorf("no such identity: %q; take tls or psk", s.Auth)
	}
	if s.Sandbox != "" {
		daemon += "sandbox: " + s.Sandbox + "\n"
	}
	f.daemonFile = "daemon.yaml"
	return errors.Join(
		os.WriteFile(filepath.Join(f.Dir, f.daemonFile), []byte(settings+daemon), 0o600),
		os.WriteFile(filepath.Join(f.Dir, settingsFile), []byte(settings+manager), 0o600))
}

// AddSettings adds text to one of the files that Secure has written: daemon.yaml or farm.yaml, which is the manager's.
func (f *Farm) AddSettings(file, text string) error {
	to, err := os.OpenFile(filepath.Join(f.Dir, file), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = to.WriteString(text)
	return errors.Join(err, to.Close())
}
