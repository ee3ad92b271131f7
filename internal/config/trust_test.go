package config

import (
	"fmt"
	"strings"
	"testing"
)

const certificates = "auth: {tls: {cert: /c, key: /k, ca: /a}}\n"

// TestTrust: whose results are taken is what cache.trust says, by default the farm, or anyone where there are no certificates.
func TestTrust(t *testing.T) {
	for _, c := range []struct {
		before, list, want, text string
	}{
		{"", "[]", "{true false [] [] []}", "unsigned"},
		{certificates, "[]", "{false true [] [] []}", "machines of the farm"},
		{certificates, "anyone", "{true false [] [] []}", "unsigned"},
		{certificates, "[farm]", "{false true [] [] []}", "machines of the farm"},
		{certificates, `["farm:ci", "farm:10.0.0.7", "not:alice"]`, "{false false [ci 10.0.0.7] [alice] []}", "ci, 10.0.0.7, but not alice"},
		{certificates, `["not:alice"]`, "{false true [] [alice] []}", "machines of the farm, but not alice"},
		{certificates, "[farm, /x/ci.crt]", "{false true [] [] [/x/ci.crt]}", "machines of the farm, /x/ci.crt"},
		{"", "[/x/../ci.crt]", "{false false [] [] [/ci.crt]}", "/ci.crt"},
	} {
		x, err := Parse("f", []byte(c.before+"cache: {trust: "+c.list+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", c.list, err)
			continue
		}
		if got := x.Trust(); fmt.Sprint(struct {
			a, b    bool
			c, d, e []string
		}{got.Anyone, got.Farm, got.Names, got.Not, got.Files}) != c.want || got.String() != c.text {
			t.Errorf("%s: %+v, %q", c.list, got, got)
		}
	}
}

// TestWrongTrust: what is wrong is one line that names it and the remedy.
func TestWrongTrust(t *testing.T) {
	for _, c := range []struct{ before, list, want string }{
		{"", "[farm]", "there are no machines of a farm without certificates: set auth.tls"},
		{"", `["farm:ci"]`, "set auth.tls"},
		{"", `["not:ci"]`, "nothing has to be signed"},
		{certificates, "[anyone, farm]", "anyone stands alone"},
		{certificates, "[ca.crt]", `"ca.crt" is none of farm, farm:NAME, not:NAME, anyone, and an absolute path`},
		{certificates, `["farm:"]`, "1 to 100 characters"},
		{certificates, `["not:a b"]`, "a character that cannot be in a name"},
	} {
		_, err := Parse("f", []byte(c.before+"cache:\n  trust: "+c.list+"\n"))
		if err == nil || !strings.Contains(err.Error(), "cache.trust: ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.list, err)
		}
	}
}
