package tiers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
	"github.com/rdistcc/rdistcc/pkg/resultcache/helper"
)

// openHelper opens a helper's store. Its secrets go into the helper's environment and nowhere else.
func openHelper(h *config.Helper, getenv func(string) string, environ []string) (resultcache.Store, error) {
	o := helper.Options{Program: h.Program, URL: secret.New(h.URL), Path: getenv("PATH"), Environ: forHelpers(environ)}
	for _, a := range h.Attributes {
		o.Attributes = append(o.Attributes, crsh.Attribute(a))
	}
	if h.Secrets != "" {
		lines, err := secret.Lines(h.Secrets, getenv)
		if err != nil {
			return nil, fmt.Errorf("cache.helpers: %s: secrets: %w", h.Name, err)
		}
		for _, line := range lines {
			if err := addSecret(&o, line); err != nil {
				return nil, fmt.Errorf("cache.helpers: %s: secrets: %s: %w", h.Name, h.Secrets, err)
			}
		}
	}
	s, err := helper.Open(o)
	if err != nil {
		return nil, fmt.Errorf("cache.helpers: %s: %w", h.Name, err)
	}
	return s, nil
}

// addSecret adds a line of a file of secrets: url=URL, @ATTRIBUTE=VALUE or VARIABLE=VALUE.
func addSecret(o *helper.Options, line secret.Secret) error {
	key, value, ok := strings.Cut(line.Reveal(), "=")
	if key = strings.TrimSpace(key); !ok || key == "" || value == "" {
		return fmt.Errorf("a line is none of url=URL, @ATTRIBUTE=VALUE and VARIABLE=VALUE")
	}
	hidden := value
	switch name, is := strings.CutPrefix(key, "@"); {
	case is:
		o.Attributes = slices.DeleteFunc(o.Attributes, func(a crsh.Attribute) bool { return a.Name == name })
		o.Attributes = append(o.Attributes, crsh.Attribute{Name: name, Value: value})
	case key == "url":
		o.URL = secret.New(value)
		_, user, _ := strings.Cut(value, "://")
		if user, _, ok = strings.Cut(user, "@"); !ok {
			return nil // there is nothing secret in it
		}
		_, hidden, ok = strings.Cut(user, ":")
		if !ok {
			hidden = user
		}
	default:
		o.Environ = append(o.Environ, key+"="+value)
	}
	o.Secrets = append(o.Secrets, secret.New(hidden))
	return nil
}

// forHelpers returns the variables that helpers get: those of the manager without other tiers' secrets, and without what a
// manager of their own would take for its own.
func forHelpers(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case RedisPassword, REAPIToken, "RDISTCC_READY_FD", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES":
			return true
		}
		return strings.HasPrefix(name, "CRSH_")
	})
}
