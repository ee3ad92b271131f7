package tiers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/internal/tlsfiles"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/reapi"
	"github.com/rdistcc/rdistcc/pkg/resultcache/redis"
	"github.com/rdistcc/rdistcc/pkg/resultcache/s3"
)

// Variables of the environment with what may not be in the configuration.
const (
	RedisPassword = "RDISTCC_REDIS_PASSWORD"
	REAPIToken    = "RDISTCC_REAPI_TOKEN"
)

// shared opens the store of a tier that is not this machine's.
func shared(t *results.Tier, c *config.Config, getenv func(string) string, environ []string) {
	t.Shared = true
	var err error
	switch t.Name {
	case resultcache.TierRedis:
		t.Timeout = c.Cache.Redis.Timeout
		t.Store, err = openRedis(&c.Cache.Redis, getenv)
	case resultcache.TierS3:
		t.Timeout = c.Cache.S3.Timeout
		t.Store, err = openS3(&c.Cache.S3, getenv)
	case resultcache.TierREAPI:
		t.Timeout = c.Cache.REAPI.Timeout
		t.Store, err = openREAPI(&c.Cache.REAPI, getenv)
	default:
		t.Lent = true
		helpers := c.Helpers()
		h := &helpers[slices.IndexFunc(helpers, func(h config.Helper) bool { return h.Name == t.Name })]
		t.Timeout = h.Timeout
		t.Store, err = openHelper(h, getenv, environ)
	}
	if err != nil {
		t.Store = unusable{err}
	}
}

func openRedis(r *config.Redis, getenv func(string) string) (resultcache.Store, error) {
	password, err := secret.Find(r.PasswordFile, RedisPassword, getenv)
	if err != nil {
		return nil, fmt.Errorf("cache.redis.password-file: %w", err)
	}
	tls, err := tlsfiles.Client("cache.redis", r.CA, r.Cert, r.Key)
	if err != nil {
		return nil, err
	}
	return redis.Open(redis.Options{URL: r.URL, User: r.User, Password: password, Database: r.Database, Prefix: r.Prefix, TTL: r.TTL, TLS: tls})
}

func openS3(o *config.S3, getenv func(string) string) (resultcache.Store, error) {
	tls, err := tlsfiles.Client("cache.s3", o.CA, "", "")
	if err != nil {
		return nil, err
	}
	// The address that hands out roles exists at Amazon's only; elsewhere it would be asked in vain, unless the environment
	// names another one.
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, errors.New("cache.s3.endpoint: not a URL") // the error would show it
	}
	role := strings.HasSuffix(u.Hostname(), ".amazonaws.com") || strings.HasSuffix(u.Hostname(), ".amazonaws.com.cn")
	for _, name := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		role = role || getenv(name) != ""
	}
	return s3.Open(s3.Options{
		Endpoint: o.Endpoint, Bucket: o.Bucket, Prefix: o.Prefix, Region: cmp.Or(o.Region, getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION")),
		Addressing: s3.Addressing(o.Addressing), TLS: tls,
		Login: s3.Login{Anonymous: o.Anonymous, File: o.CredentialsFile, Profile: o.Profile, Role: role},
	})
}

func openREAPI(r *config.REAPI, getenv func(string) string) (resultcache.Store, error) {
	token, err := secret.Find(r.TokenFile, REAPIToken, getenv)
	if err != nil {
		return nil, fmt.Errorf("cache.reapi.token-file: %w", err)
	}
	tls, err := tlsfiles.Client("cache.reapi", r.CA, r.Cert, r.Key)
	if err != nil {
		return nil, err
	}
	return reapi.Open(cas.Options{URL: r.URL, Instance: r.Instance, Header: r.Header, Token: token, TLS: tls})
}

// unusable is a store that could not be opened.
type unusable struct{ err error }

func (u unusable) Get(_ context.Context, _ resultcache.Key, buf []byte) ([]byte, error) {
	return buf, u.err
}
func (u unusable) Put(context.Context, resultcache.Key, []byte) error { return u.err }
func (u unusable) Drop(context.Context, resultcache.Key) error        { return u.err }
func (u unusable) Close() error                                       { return nil }
