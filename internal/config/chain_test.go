package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// cached returns the settings of a file whose section cache has these lines.
func cached(lines ...string) (*Config, error) {
	return Parse("f", []byte("cache:\n  "+strings.Join(lines, "\n  ")+"\n"))
}

// TestTiers: tiers are asked in the order that is set, else in that of their settings, and used as their modes say.
func TestTiers(t *testing.T) {
	const stores = "redis: {url: \"redis://h\", mode: read}\n  s3: {bucket: results}"
	for _, c := range []struct{ lines, want string }{
		{"use: true", "[{manager read-write} {farm read-write}]"},
		{"size: 0", "[{farm read-write}]"},
		{"farm: false", "[{manager read-write}]"},
		{stores, "[{manager read-write} {farm read-write} {redis read} {s3 read-write}]"},
		{stores + "\n  helpers: [\"web = https://h/x mode=write\", \"gcs = gs://b\"]", "[{manager read-write} {farm read-write} {redis read} {s3 read-write} {web write} {gcs read-write}]"},
		{stores + "\n  tiers: [s3, manager]", "[{s3 read-write} {manager read-write}]"},
		{stores + "\n  tiers: [\"redis:read-write\", \"s3:write\", farm, \"manager:read\"]", "[{redis read-write} {s3 write} {farm read-write} {manager read}]"},
		{"helpers: [\"web = https://h/x\"]\n  tiers: [\"web:read\", manager]", "[{web read} {manager read-write}]"},
		{"tiers: farm", "[{farm read-write}]"},
	} {
		x, err := cached(c.lines)
		if err != nil {
			t.Errorf("%s: %v", c.lines, err)
			continue
		}
		if got := fmt.Sprint(x.Tiers()); got != c.want {
			t.Errorf("%s: %s, want %s", c.lines, got, c.want)
		}
	}
}

// TestHelpers: a helper's line is as in ccache's settings.
func TestHelpers(t *testing.T) {
	x, err := cached(`helpers: ["web = https://h:1/a?b=c  helper=/opt/x timeout=7ms mode=read secrets=/s @layout=a%20b @flag= ", "gcs=gs://bucket"]`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Helper{
		{"web", "https://h:1/a?b=c", "/opt/x", ModeRead, 7 * time.Millisecond, "/s", []Attribute{{"layout", "a b"}, {"flag", ""}}},
		{"gcs", "gs://bucket", "", ModeReadWrite, helperTime, "", nil},
	}
	if got := x.Helpers(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestWrongChains: what is wrong is one line that names it and the remedy, and no secret.
func TestWrongChains(t *testing.T) {
	for lines, want := range map[string]string{
		"tiers: [disk]":                                       `f:2: cache.tiers: there is no tier "disk": write names out of manager, farm, redis, s3, reapi, or of cache.helpers`,
		"tiers: [redis]":                                      "f:2: cache.tiers: redis is not set up: see cache.redis.url",
		"size: 0\n  tiers: [manager]":                         "f:3: cache.tiers: manager is not set up: see cache.size",
		"tiers: [manager, \"manager:read\"]":                  "manager is there twice",
		"tiers: [\"manager:ro\"]":                             "manager: ",
		"tiers: [\"farm:read\"]":                              "farm has no mode",
		"helpers: [\"https://h\"]":                            "an entry is not NAME = URL, as in",
		"helpers: [\"web = \"]":                               "an entry is not NAME = URL, as in",
		"helpers: [\"Web = https://h\"]":                      `the name "Web" is not 32 or fewer`,
		"helpers: [\"redis = redis://h\"]":                    "redis is a tier of its own",
		"helpers: [\"web = h\"]":                              "web: its first word is not a URL",
		"helpers: [\"web = https://me:s3cret@h\"]":            "web: a user or a password must not be in the URL: use secrets=FILE",
		"helpers: [\"web = https://h @bearer-token=s3cret\"]": "@bearer-token does not belong into this file: use secrets=FILE",
		"helpers: [\"web = https://h layout=s3cret\"]":        `there is no property "layout"`,
		"helpers: [\"web = https://h s3cret\"]":               "is not PROPERTY=VALUE",
		"helpers: [\"web = https://h helper=./x\"]":           "helper is neither an absolute path nor a program's name",
		"helpers: [\"web = https://h timeout=1h\"]":           "web: timeout: ",
		"helpers: [\"web = https://h timeout=x\"]":            "web: timeout: ",
		"helpers: [\"web = https://h mode=all\"]":             "web: ",
		"helpers: [\"web = https://h secrets=x\"]":            "web: ",
		"helpers: [\"web = https://h @x=%\"]":                 "@x is not percent-encoded",
		"helpers: [\"web = https://h\", \"web = gs://h\"]":    "web is there twice",
	} {
		_, err := cached(lines)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "s3cret") && !strings.Contains(lines, " s3cret") {
			t.Errorf("%s: %v, want %q", lines, err, want)
		}
	}
}
