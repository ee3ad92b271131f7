package config

import (
	"fmt"
	"slices"
	"strings"
)

// mostGroupName bounds the name of a group, in bytes: hosts tell it to clients.
const mostGroupName = 32

// parseGroup parses "GROUP = CLIENT CLIENT ...".
func parseGroup(s string) (group string, members []string, err error) {
	group, list, ok := strings.Cut(s, "=")
	group, members = strings.TrimSpace(group), strings.Fields(list)
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	switch {
	case !ok || group == "" || len(members) < 2:
		return "", nil, fmt.Errorf("%.100q is not GROUP = CLIENT CLIENT ..., as in team = alice bob ci, with two clients at least", s)
	case len(group) > mostGroupName || strings.ContainsFunc(group, bad):
		return "", nil, fmt.Errorf("the group's name %.100q is not %d or fewer of letters, digits, dots, hyphens and underscores", group, mostGroupName)
	}
	return group, members, nil
}

// checkGroups checks the groups of clients that share results, and that they can be told apart.
func (c *Config) checkGroups() error {
	if len(c.Store.Groups) == 0 {
		return nil
	}
	in := make(map[string]string)
	var names []string
	for _, s := range c.Store.Groups {
		group, members, err := parseGroup(s)
		if err != nil {
			return err
		}
		if slices.Contains(names, group) {
			return fmt.Errorf("group %s is there twice", group)
		}
		names = append(names, group)
		for _, m := range members {
			if other, is := in[m]; is {
				return fmt.Errorf("client %.100q is in %s and in %s: a client is in one group at most, once", m, other, group)
			}
			in[m] = group
		}
	}
	switch {
	case c.Auth.TLS == (TLS{}):
		return fmt.Errorf("without certificates (auth.tls), clients have no names, and results no signatures")
	case c.Sandbox == "off":
		return fmt.Errorf("with sandbox: off, any compile could read this host's key and sign results that it has made up")
	case !c.Store.Use || c.Store.Results == 0:
		return fmt.Errorf("no results are kept here (store.use, store.results)")
	}
	return nil
}

// Groups returns the group of each client that shares results with others.
func (c *Config) Groups() map[string]string {
	of := make(map[string]string)
	for _, s := range c.Store.Groups {
		group, members, _ := parseGroup(s) // Validate rejected others
		for _, m := range members {
			of[m] = group
		}
	}
	return of
}
