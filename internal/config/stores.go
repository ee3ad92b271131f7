package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Redis configures a Redis server in which results are kept.
type Redis struct {
	URL          string        `yaml:"url"` // redis, rediss or unix; empty = none
	Mode         string        `yaml:"mode"`
	Timeout      time.Duration `yaml:"timeout"` // of a look
	User         string        `yaml:"user"`
	PasswordFile string        `yaml:"password-file"` // empty = from the environment, or none
	Database     int           `yaml:"database"`
	Prefix       string        `yaml:"prefix"`
	TTL          time.Duration `yaml:"ttl"` // 0 = for ever
	CA           string        `yaml:"ca"`  // empty = the system's
	Cert         string        `yaml:"cert"`
	Key          string        `yaml:"key"`
}

// S3 configures a bucket in which results are kept.
type S3 struct {
	Bucket          string        `yaml:"bucket"` // empty = none
	Endpoint        string        `yaml:"endpoint"`
	Mode            string        `yaml:"mode"`
	Timeout         time.Duration `yaml:"timeout"` // of a look
	Prefix          string        `yaml:"prefix"`
	Region          string        `yaml:"region"`           // empty = from the environment, or as the service says
	Addressing      string        `yaml:"addressing"`       // where the bucket stands: auto, path, host
	Anonymous       bool          `yaml:"anonymous"`        // without credentials
	CredentialsFile string        `yaml:"credentials-file"` // empty = from the environment, or the usual file
	Profile         string        `yaml:"profile"`          // in the file
	CA              string        `yaml:"ca"`               // empty = the system's
}

// REAPI configures a cache of the Remote Execution API in which results are kept.
type REAPI struct {
	URL       string        `yaml:"url"` // grpc, grpcs or unix; empty = none
	Mode      string        `yaml:"mode"`
	Timeout   time.Duration `yaml:"timeout"` // of a look
	Instance  string        `yaml:"instance"`
	TokenFile string        `yaml:"token-file"` // empty = from the environment, or none
	Header    string        `yaml:"header"`     // that the token is sent in
	CA        string        `yaml:"ca"`         // empty = the system's
	Cert      string        `yaml:"cert"`
	Key       string        `yaml:"key"`
}

// Words for the mode of a store.
const (
	ModeReadWrite = "read-write"
	ModeRead      = "read"
	ModeWrite     = "write"
)

func defaultRedis() Redis {
	return Redis{Mode: ModeReadWrite, Timeout: 250 * time.Millisecond, Prefix: "rdistcc:", TTL: 30 * 24 * time.Hour}
}

func defaultS3() S3 {
	return S3{Endpoint: "https://s3.amazonaws.com", Mode: ModeReadWrite, Timeout: time.Second, Prefix: "rdistcc/", Addressing: "auto"}
}

func defaultREAPI() REAPI {
	return REAPI{Mode: ModeReadWrite, Timeout: 500 * time.Millisecond, Header: "authorization"}
}

// check is the result of checking a key.
type check struct {
	key string
	err error
}

// lookTime bounds how long a look into a store may take: one that takes longer is not worth it.
func lookTime(d time.Duration) error { return within(d, time.Millisecond, 10*time.Second) }

func mode(s string) error { return oneOf(s, ModeReadWrite, ModeRead, ModeWrite) }

func (r *Redis) checks() []check {
	const at = "cache.redis."
	return []check{
		{at + "url", storeURL(r.URL, at+"password-file and "+at+"user", at+"database", "redis", "rediss", "unix")},
		{at + "mode", mode(r.Mode)},
		{at + "timeout", lookTime(r.Timeout)},
		{at + "password-file", absoluteOrEmpty(r.PasswordFile)},
		{at + "database", between(r.Database, 0, 1<<16)},
		{at + "prefix", plainWord(r.Prefix)},
		{at + "ttl", within(r.TTL, 0, 10*365*24*time.Hour)},
		{at + "ca", absoluteOrEmpty(r.CA)},
		{at + "cert", pairOfFiles(r.Cert, r.Key)},
		{at + "key", absoluteOrEmpty(r.Key)},
	}
}

func (s *S3) checks() []check {
	const at = "cache.s3."
	return []check{
		{at + "bucket", bucket(s.Bucket)},
		{at + "endpoint", storeURL(s.Endpoint, at+"credentials-file", at+"bucket and "+at+"prefix", "http", "https")},
		{at + "endpoint", required(s.Bucket, s.Endpoint)},
		{at + "mode", mode(s.Mode)},
		{at + "timeout", lookTime(s.Timeout)},
		{at + "prefix", plainWord(s.Prefix)},
		{at + "region", plainWord(s.Region)},
		{at + "addressing", oneOf(s.Addressing, "auto", "path", "host")},
		{at + "credentials-file", absoluteOrEmpty(s.CredentialsFile)},
		{at + "ca", absoluteOrEmpty(s.CA)},
	}
}

func (r *REAPI) checks() []check {
	const at = "cache.reapi."
	return []check{
		{at + "url", storeURL(r.URL, at+"token-file", at+"instance", "grpc", "grpcs", "unix")},
		{at + "mode", mode(r.Mode)},
		{at + "timeout", lookTime(r.Timeout)},
		{at + "instance", plainWord(r.Instance)},
		{at + "token-file", absoluteOrEmpty(r.TokenFile)},
		{at + "header", header(r.Header)},
		{at + "ca", absoluteOrEmpty(r.CA)},
		{at + "cert", pairOfFiles(r.Cert, r.Key)},
		{at + "key", absoluteOrEmpty(r.Key)},
	}
}

// header checks the name of a header. Those of gRPC's own are not for us to set, and values of -bin are encoded.
func header(name string) error {
	lower := strings.ToLower(name)
	if name == "" || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || strings.HasPrefix(lower, "grpc-") || strings.HasSuffix(lower, "-bin") {
		return fmt.Errorf("%q is not the name of a header for a token, as authorization or x-api-key", name)
	}
	return nil
}

// bucket checks the name of a bucket.
func bucket(name string) error {
	if name == "" {
		return nil
	}
	if len(name) < 3 || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return fmt.Errorf("%q is not the name of a bucket: 3 to 63 lower case letters, digits, dots and dashes", name)
	}
	return nil
}

// required checks that there is an address if there is something to be found there.
func required(thing, address string) error {
	if thing != "" && address == "" {
		return fmt.Errorf("is missing")
	}
	return nil
}

// storeURL checks the URL of a server. Its errors do not show it: there may be a password in it. secret and path
// are the keys for what does not belong into it.
func storeURL(text, secret, path string, schemes ...string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, "@"):
		return fmt.Errorf("a user or a password must not be in it: use %s", secret)
	case err != nil || !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("is not a URL that begins with %s", strings.Join(schemes, ":// or ")+"://")
	case u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return fmt.Errorf("has more in it than a server's address")
	case u.Scheme == "unix":
		if u.Host != "" {
			return fmt.Errorf("is not an absolute path behind unix://")
		}
		return absolute(u.Path)
	case u.Hostname() == "":
		return fmt.Errorf("names no host")
	case strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("has more in it than a server's address: use %s", path)
	}
	return nil
}

// plainWord checks a word that becomes part of names.
func plainWord(s string) error {
	for _, c := range s {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("%q has a character that cannot be in a name", s)
		}
	}
	return nil
}

// pairOfFiles checks the name of a certificate, beside that of its key.
func pairOfFiles(cert, key string) error {
	if (cert == "") != (key == "") {
		return fmt.Errorf("cert and key belong together: set both or none")
	}
	return absoluteOrEmpty(cert)
}
