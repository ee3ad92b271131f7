package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the tiers of the cache that have settings of their own, in the order in which they are asked if cache.tiers
// says nothing else. Helpers follow, in the order of cache.helpers.
const (
	tierManager = "manager"
	tierFarm    = "farm"
	tierRedis   = "redis"
	tierS3      = "s3"
	tierREAPI   = "reapi"
)

func tierNames() []string { return []string{tierManager, tierFarm, tierRedis, tierS3, tierREAPI} }

// Tier is a tier of the cache that is used, and how.
type Tier struct{ Name, Mode string }

// Tiers returns the tiers of the cache that are used, in the order in which they are asked.
func (c *Config) Tiers() []Tier {
	all, _ := c.Cache.chain() // Validate rejected what is wrong
	return all
}

// ready returns the tiers that are set up, in the order in which they are asked by default, each with the mode of its own
// settings.
func (c *Cache) ready() (all []Tier) {
	for _, t := range []struct {
		is bool
		Tier
	}{
		{c.Size > 0, Tier{tierManager, ModeReadWrite}},
		{c.Farm, Tier{tierFarm, ModeReadWrite}},
		{c.Redis.URL != "", Tier{tierRedis, c.Redis.Mode}},
		{c.S3.Bucket != "", Tier{tierS3, c.S3.Mode}},
		{c.REAPI.URL != "", Tier{tierREAPI, c.REAPI.Mode}},
	} {
		if t.is {
			all = append(all, t.Tier)
		}
	}
	for _, line := range c.Helpers {
		if h, err := parseHelper(line); err == nil {
			all = append(all, Tier{h.Name, h.Mode})
		}
	}
	return all
}

// chain returns Tiers, or what is wrong with cache.tiers.
func (c *Cache) chain() ([]Tier, error) {
	ready := c.ready()
	if len(c.Tiers) == 0 {
		return ready, nil
	}
	var all []Tier
	for _, word := range c.Tiers {
		name, how, asked := strings.Cut(word, ":")
		is := func(t Tier) bool { return t.Name == name }
		i := slices.IndexFunc(ready, is)
		switch {
		case i < 0 && slices.Contains(tierNames(), name):
			return nil, fmt.Errorf("%s is not set up: see cache.%s", name, map[string]string{tierManager: "size", tierFarm: "farm", tierRedis: "redis.url", tierS3: "s3.bucket", tierREAPI: "reapi.url"}[name])
		case i < 0:
			return nil, fmt.Errorf("there is no tier %.60q: write names out of %s, or of cache.helpers", name, strings.Join(tierNames(), ", "))
		case slices.ContainsFunc(all, is):
			return nil, fmt.Errorf("%s is there twice", name)
		case asked && name == tierFarm:
			return nil, fmt.Errorf("%.60q: hosts keep what they compile by themselves, so farm has no mode", word)
		}
		t := ready[i]
		if asked {
			t.Mode = how
		}
		if err := mode(t.Mode); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// Helper is a storage helper of ccache's that is a tier of the cache.
type Helper struct {
	Name       string // of the tier
	URL        string // of the store
	Program    string // empty = ccache-storage-SCHEME, wherever it is
	Mode       string
	Timeout    time.Duration // of a look
	Secrets    string        // file; empty = none
	Attributes []Attribute   // for the helper
}

// Attribute is a setting for a helper.
type Attribute struct{ Name, Value string }

// Helpers returns those of cache.helpers.
func (c *Config) Helpers() (all []Helper) {
	for _, line := range c.Cache.Helpers {
		h, _ := parseHelper(line) // Validate rejected others
		all = append(all, h)
	}
	return all
}

// helperTime bounds a look that asks a helper, if its line says nothing else.
const helperTime = 500 * time.Millisecond

// parseHelper parses "NAME = URL [PROPERTY=VALUE]... [@ATTRIBUTE=VALUE]...". But for the name it is what ccache has in
// remote_storage, where a value has % and spaces percent-encoded. Errors do not show values: there may be a password.
func parseHelper(line string) (h Helper, err error) {
	name, rest, ok := strings.Cut(line, "=")
	words := strings.Fields(rest)
	h = Helper{Name: strings.TrimSpace(name), Mode: ModeReadWrite, Timeout: helperTime}
	switch {
	case !ok || len(words) == 0 || h.Name == "":
		return h, fmt.Errorf("an entry is not NAME = URL, as in: web = https://cache.example.org/results")
	case strings.Trim(h.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(h.Name) > 32:
		return h, fmt.Errorf("the name %.60q is not 32 or fewer of small letters, digits and hyphens", h.Name)
	case slices.Contains(tierNames(), h.Name):
		return h, fmt.Errorf("%s is a tier of its own: give the helper another name", h.Name)
	}
	u, err := url.Parse(words[0])
	if err != nil || u.Scheme == "" {
		return h, fmt.Errorf("%s: its first word is not a URL, as https://cache.example.org/results is", h.Name)
	}
	if u.User != nil {
		return h, fmt.Errorf("%s: a user or a password must not be in the URL: use secrets=FILE, with a line url=URL", h.Name)
	}
	h.URL = words[0]
	for _, word := range words[1:] {
		if err := h.property(word); err != nil {
			return h, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return h, nil
}

func (h *Helper) property(word string) error {
	key, value, ok := strings.Cut(word, "=")
	value, err := url.PathUnescape(value)
	switch {
	case !ok:
		return fmt.Errorf("%.60q is not PROPERTY=VALUE", key)
	case err != nil:
		return fmt.Errorf("%s is not percent-encoded: write %%25 for a percent sign", key)
	}
	switch key {
	case "helper":
		h.Program = value
		if strings.Contains(value, "/") && !filepath.IsAbs(value) {
			return fmt.Errorf("helper is neither an absolute path nor a program's name")
		}
	case "mode":
		h.Mode = value
		return mode(value)
	case "timeout":
		if h.Timeout, err = parseDuration(value); err == nil {
			err = lookTime(h.Timeout)
		}
		if err != nil {
			return fmt.Errorf("timeout: %w", err)
		}
	case "secrets":
		h.Secrets = value
		return absolute(value)
	default:
		name, is := strings.CutPrefix(key, "@")
		if !is || name == "" {
			return fmt.Errorf("there is no property %.60q: there are helper, mode, timeout, secrets, and @NAME for the helper's own", key)
		}
		for _, part := range []string{"token", "password", "secret", "header"} {
			if strings.Contains(strings.ToLower(name), part) {
				return fmt.Errorf("@%.60s does not belong into this file: use secrets=FILE, with a line @%.60s=VALUE", name, name)
			}
		}
		h.Attributes = append(h.Attributes, Attribute{name, value})
	}
	return nil
}

// helpers checks cache.helpers.
func helpers(lines []string) error {
	var names []string
	for _, line := range lines {
		h, err := parseHelper(line)
		if err != nil {
			return err
		}
		if slices.Contains(names, h.Name) {
			return fmt.Errorf("%s is there twice", h.Name)
		}
		names = append(names, h.Name)
	}
	return nil
}

// chained checks cache.tiers.
func chained(c *Cache) error {
	_, err := c.chain()
	return err
}
