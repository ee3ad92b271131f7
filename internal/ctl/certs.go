package ctl

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
	"github.com/rdistcc/rdistcc/internal/reason"
)

// Lifetimes of certificates.
const (
	certDays = 825
	certMost = 36500
	caLife   = 10 * 365 * 24 * time.Hour // or that of the first pairs, if longer
)

// certs is one run of the command.
type certs struct {
	daemons, clients []string
	days             int
	dir              string
	ca               *authority.CA
	made             []madePair
	newCA            bool
}

// madePair is a pair that was made.
type madePair struct {
	name  string // of the files
	role  identity.Role
	names []string
}

func (c *ctl) certsCommand() *cobra.Command {
	var m certs
	cmd := &cobra.Command{
		Use:   "certs DIR",
		Short: "Create certificates for mutual TLS between build hosts and compile hosts",
		Long: "Creates, in DIR, a CA for the farm (unless there is one already) and certificates with keys that it signs: by\n" +
			"default one for all daemons and one for all clients. It never overwrites a file; run it again to add more pairs,\n" +
			"and keep ca.key private. It prints which file goes where.",
		Example: "  rdistcc certs farm\n" +
			"  rdistcc certs farm --daemon build7,10.0.0.7 --daemon build8 --client alice --client ci --days 90",
		Args: one("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			m.dir = args[0]
			text, err := m.run(time.Now())
			if err != nil {
				return err
			}
			return c.print([]byte(text))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&m.daemons, "daemon", nil, "create a pair for the daemon on the host with these names and addresses, `NAME[,NAME|IP...]`; may be repeated (default: one pair for any daemon)")
	f.StringArrayVar(&m.clients, "client", nil, "create a pair for the client `NAME`, which is how daemons identify it; may be repeated (default: one pair named client)")
	f.IntVar(&m.days, "days", certDays, "days for which the certificates are valid, `N`")
	return cmd
}

// run makes everything that is requested, or nothing: it checks first.
func (m *certs) run(now time.Time) (string, error) {
	if m.days < 1 || m.days > certMost {
		return "", failf(reason.ExitArguments, "--days %d: 1 to %d", m.days, certMost)
	}
	if err := m.plan(); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(m.dir)
	if err == nil {
		m.dir = dir
		err = os.MkdirAll(m.dir, 0o755)
	}
	if err != nil {
		return "", failf(reason.ExitIO, "%v", err)
	}
	for _, p := range m.made {
		for _, ext := range []string{".crt", ".key"} {
			if _, err := os.Lstat(m.path(p.name + ext)); err == nil {
				return "", failf(reason.ExitGeneral, "%s is there already: nothing is overwritten; move it away, or ask for another name with --daemon or --client", m.path(p.name+ext))
			}
		}
	}
	life := time.Duration(m.days) * 24 * time.Hour
	if err := m.openCA(now, life); err != nil {
		return "", err
	}
	for _, p := range m.made {
		r := authority.Request{Role: p.role, Names: p.names}
		r.From, r.To = m.ca.Valid(now, life)
		pair, err := m.ca.Issue(r)
		if err != nil {
			return "", failf(reason.ExitGeneral, "%s: %v", p.name, err)
		}
		if err := m.writePair(p.name, pair); err != nil {
			return "", err
		}
	}
	return m.tell(), nil
}

func (m *certs) path(name string) string { return filepath.Join(m.dir, name) }

// plan lists the pairs and checks their names.
func (m *certs) plan() error {
	daemons, clients := m.daemons, m.clients
	if len(daemons)+len(clients) == 0 {
		daemons, clients = []string{identity.Anyone}, []string{"client"}
	}
	seen := map[string]bool{"ca": true}
	add := func(role identity.Role, flag, value string) error {
		names := strings.Split(value, ",")
		for _, n := range names {
			if _, err := netip.ParseAddr(n); err != nil && !isName(n, role) {
				return failf(reason.ExitArguments, "%s %s: %q is no name: letters, digits, dots, dashes and, for a client, _ and @", flag, value, n)
			}
		}
		file := strings.ReplaceAll(names[0], ":", "_") // for an IPv6 address
		if seen[file] {
			return failf(reason.ExitArguments, "%s %s: %s.crt would be made twice, or is the CA's", flag, value, file)
		}
		seen[file] = true
		m.made = append(m.made, madePair{file, role, names})
		return nil
	}
	for _, v := range daemons {
		if err := add(identity.Daemon, "--daemon", v); err != nil {
			return err
		}
	}
	for _, v := range clients {
		if strings.Contains(v, ",") {
			return failf(reason.ExitArguments, "--client %s: one name for each; give --client again for another", v)
		}
		if err := add(identity.Client, "--client", v); err != nil {
			return err
		}
	}
	return nil
}

// isName reports whether n can be the name of a certificate and of a file.
func isName(n string, role identity.Role) bool {
	if n == "" || len(n) > 64 || n[0] == '.' || n[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(n, func(r rune) bool {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-'
		return !plain && !(role == identity.Client && (r == '_' || r == '@'))
	})
}

// openCA loads the CA of the directory, or makes one.
func (m *certs) openCA(now time.Time, life time.Duration) error {
	cert, cerr := os.ReadFile(m.path("ca.crt"))
	key, kerr := os.ReadFile(m.path("ca.key"))
	var err error
	switch {
	case errors.Is(cerr, fs.ErrNotExist) && errors.Is(kerr, fs.ErrNotExist):
		var pair authority.Pair
		if m.ca, pair, err = authority.New("rdistcc farm", now, max(caLife, life)); err != nil {
			return failf(reason.ExitGeneral, "%v", err)
		}
		m.newCA = true
		return m.writePair("ca", pair)
	case cerr != nil:
		return failf(reason.ExitIO, "%v: it belongs to ca.key, without it nothing can be signed", cerr)
	case kerr != nil:
		return failf(reason.ExitIO, "%v: without the CA's key nothing can be signed; run this where it is", kerr)
	}
	if m.ca, err = authority.Load(authority.Pair{Cert: cert, Key: key}); err != nil {
		return failf(reason.ExitGeneral, "%s: %v", m.path("ca.key"), err)
	}
	if now.After(m.ca.Expires()) {
		return failf(reason.ExitGeneral, "%s: expired on %s: make a new CA in another directory", m.path("ca.crt"), m.ca.Expires().Format(time.DateOnly))
	}
	return nil
}

// writePair writes two new files: the key first, and never readable by others.
func (m *certs) writePair(name string, p authority.Pair) error {
	for _, f := range []struct {
		ext  string
		text []byte
		mode os.FileMode
	}{{".key", p.Key, 0o600}, {".crt", p.Cert, 0o644}} {
		if err := writeNew(m.path(name+f.ext), f.text, f.mode); err != nil {
			return failf(reason.ExitIO, "%v", err)
		}
	}
	return nil
}

// writeNew writes a file that must not exist yet.
func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chmod(mode&^0o022), f.Close())
}

// tell returns what was made and where it goes.
func (m *certs) tell() string {
	var b strings.Builder
	if m.newCA {
		fmt.Fprintf(&b, "made %s and %s: anyone with the key can pose as any machine of the farm; keep it to yourself\n", m.path("ca.crt"), m.path("ca.key"))
	}
	for _, p := range m.made {
		_, to := m.ca.Valid(time.Now(), time.Duration(m.days)*24*time.Hour)
		what := "client " + p.names[0]
		if p.role == identity.Daemon {
			if what = "daemon " + strings.Join(p.names, ", "); p.names[0] == identity.Anyone {
				what = "any daemon"
			}
		}
		fmt.Fprintf(&b, "made %s.crt and .key: %s, until %s\n", m.path(p.name), what, to.Format(time.DateOnly))
	}
	for _, p := range m.made {
		where := "on its build hosts, in ~/.config/rdistcc/config.yaml or /etc/rdistcc/config.yaml"
		if p.role == identity.Daemon {
			where = "on its compile hosts, in /etc/rdistcc/config.yaml"
		}
		fmt.Fprintf(&b, "\n%s.crt, %s.key and ca.crt go to /etc/rdistcc %s:\n", p.name, p.name, where)
		fmt.Fprintf(&b, "auth:\n  tls: {cert: /etc/rdistcc/%s.crt, key: /etc/rdistcc/%s.key, ca: /etc/rdistcc/ca.crt}\n", p.name, p.name)
		if p.role == identity.Daemon {
			fmt.Fprintf(&b, "daemon:\n  listen: [\"0.0.0.0:7632\"]\n")
		}
	}
	b.WriteString("\nThe user that the program runs as must be able to read its key, and no one else: chown and chmod 600 it.\n")
	return b.String()
}
