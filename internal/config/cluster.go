package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Cluster names a cluster that speaks the Remote Execution API, to which a daemon hands all its jobs.
type Cluster struct {
	Executor  string   `yaml:"executor"`   // grpc://HOST[:PORT][/INSTANCE], grpcs for TLS, or unix:///PATH; empty = none
	TokenFile string   `yaml:"token-file"` // empty = from the environment, or none
	Header    string   `yaml:"header"`     // that the token is sent in
	CA        string   `yaml:"ca"`         // empty = the system's
	Cert      string   `yaml:"cert"`
	Key       string   `yaml:"key"`
	Platform  []string `yaml:"platform"` // NAME=VALUE, properties that workers must have
	// ActionCache lets the cluster answer with results that it has.
	ActionCache bool `yaml:"action-cache"`
}

// Server returns the address of the cluster, and the name of the instance there.
func (c *Cluster) Server() (address, instance string) {
	u, err := url.Parse(c.Executor)
	if err != nil || u.Scheme == "unix" {
		return c.Executor, ""
	}
	instance = strings.Trim(u.Path, "/")
	u.Path, u.RawPath = "", ""
	return u.String(), instance
}

// Properties returns Platform by name.
func (c *Cluster) Properties() map[string]string {
	p := make(map[string]string, len(c.Platform))
	for _, x := range c.Platform {
		name, value, _ := strings.Cut(x, "=")
		p[name] = value
	}
	return p
}

func (c *Cluster) checks(d *Distcc) []check {
	const at = "cluster."
	address, instance := c.Server()
	return []check{
		{at + "executor", storeURL(address, at+"token-file", at+"executor", "grpc", "grpcs", "unix")},
		{at + "executor", plainWord(instance)},
		{at + "executor", c.served(d)},
		{at + "token-file", absoluteOrEmpty(c.TokenFile)},
		{at + "header", header(c.Header)},
		{at + "ca", absoluteOrEmpty(c.CA)},
		{at + "cert", pairOfFiles(c.Cert, c.Key)},
		{at + "key", absoluteOrEmpty(c.Key)},
		{at + "platform", properties(c.Platform)},
	}
}

// served refuses clients that a cluster cannot serve: their jobs take this machine's own headers.
func (c *Cluster) served(d *Distcc) error {
	if c.Executor != "" && len(d.Listen) > 0 {
		return fmt.Errorf("clients of distcc take this machine's own headers, which a cluster does not have: leave out distcc.listen, or serve them by another daemon")
	}
	return nil
}

// properties checks properties of a platform.
func properties(list []string) error {
	var names []string
	for _, p := range list {
		name, _, ok := strings.Cut(p, "=")
		switch {
		case !ok || strings.TrimSpace(name) == "":
			return fmt.Errorf("%q is not NAME=VALUE, as in OSFamily=linux", p)
		case slices.Contains(names, name):
			return fmt.Errorf("%q is there twice", name)
		}
		names = append(names, name)
	}
	return nil
}
