package config

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Trust says whose results are taken from stores that others use: cache.trust.
type Trust struct {
	Anyone bool     // whoever can write to a store; otherwise, results need a signature
	Farm   bool     // of a machine of the farm, by the CA of auth.tls
	Names  []string // without Farm: of one with such a name in its certificate
	Not    []string // names whose signatures never count
	Files  []string // PEM, of further CAs, certificates and public keys
}

// Words of cache.trust.
const (
	trustAnyone = "anyone"
	trustFarm   = "farm"
	trustNot    = "not"
)

// Trust returns what cache.trust says. By default it is the farm, or anyone if there are no certificates.
func (c *Config) Trust() Trust {
	t, _ := parseTrust(c.Cache.Trust) // Validate rejected what is wrong
	if !t.Anyone && !t.Farm && len(t.Names)+len(t.Files) == 0 {
		t.Farm = c.Auth.TLS.CA != ""
		t.Anyone = !t.Farm
	}
	return t
}

// String says in a few words whose results are taken.
func (t Trust) String() string {
	if t.Anyone {
		return "unsigned"
	}
	var whom []string
	if t.Farm {
		whom = append(whom, "machines of the farm")
	}
	whom = append(append(whom, t.Names...), t.Files...)
	text := strings.Join(whom, ", ")
	if len(t.Not) > 0 {
		text += ", but not " + strings.Join(t.Not, ", ")
	}
	return text
}

func parseTrust(words []string) (t Trust, err error) {
	for _, word := range words {
		kind, name, named := strings.Cut(word, ":")
		switch {
		case filepath.IsAbs(word):
			t.Files = append(t.Files, filepath.Clean(word))
		case word == trustAnyone:
			t.Anyone = true
		case word == trustFarm:
			t.Farm = true
		case named && kind == trustFarm:
			t.Names, err = append(t.Names, name), nameOfMachine(name)
		case named && kind == trustNot:
			t.Not, err = append(t.Not, name), nameOfMachine(name)
		default:
			err = fmt.Errorf("%.60q is none of farm, farm:NAME, not:NAME, anyone, and an absolute path", word)
		}
		if err != nil {
			return t, err
		}
	}
	if t.Anyone && len(words) > 1 {
		return t, fmt.Errorf("anyone stands alone: whoever can write to a store is believed then, whatever else is in the list")
	}
	return t, nil
}

// nameOfMachine checks a name as a certificate can have it.
func nameOfMachine(name string) error {
	if name == "" || len(name) > 100 {
		return fmt.Errorf("the name of a machine, as its certificate has it, has 1 to 100 characters")
	}
	return plainWord(name)
}

// trusted checks cache.trust.
func (c *Config) trusted() error {
	t, err := parseTrust(c.Cache.Trust)
	none := c.Auth.TLS.CA == ""
	switch {
	case err != nil:
		return err
	case none && (t.Farm || len(t.Names) > 0):
		return fmt.Errorf("there are no machines of a farm without certificates: set auth.tls")
	case none && len(t.Not) > 0 && len(t.Files) == 0:
		return fmt.Errorf("not:%s: without certificates (auth.tls), and without files, nothing has to be signed", t.Not[0])
	}
	return nil
}
