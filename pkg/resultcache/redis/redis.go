// Package redis keeps results in a Redis server, or in one that speaks its protocol, such as Valkey.
//
// An entry is a string under PREFIX and the key in hexadecimal. It expires after a time without being written;
// which entries go earlier, when memory is short, is the server's choice (maxmemory-policy).
package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Options are the options of Open.
type Options struct {
	// URL is redis://HOST[:PORT], rediss://HOST[:PORT] for TLS, or unix:///PATH.
	URL      string
	User     string // empty: the server's default user
	Password secret.Secret
	Database int
	Prefix   string        // of the names of all entries
	TTL      time.Duration // after which an entry expires; 0: never
	TLS      *tls.Config   // for rediss
}

// Store keeps entries in a server. It is safe for concurrent use.
type Store struct {
	client   *redis.Client
	prefix   string
	ttl      time.Duration
	password secret.Secret
}

// MaxEntry is the largest entry that is kept, in bytes. It bounds what an answer of the server may allocate.
const MaxEntry = 64 << 20

// dialTime bounds the time to connect where the caller's context allows more.
const dialTime = 5 * time.Second

// Open returns the store of a server. It does not connect yet.
func Open(o Options) (*Store, error) {
	network, addr, secure, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	logging.Disable() // what it would say comes as an error as well, and stderr is not for libraries
	dialer := &net.Dialer{Timeout: dialTime}
	opts := &redis.Options{
		Network: network, Addr: addr, Username: o.User, Password: o.Password.Reveal(), DB: o.Database,
		// The caller says how long everything may take, and knows what to do about trouble.
		ContextTimeoutEnabled: true, ReadTimeout: -1, WriteTimeout: -1, PoolTimeout: dialTime, DialerRetries: 1,
		MaxRetries: 1, MinRetryBackoff: -1, MaxRetryBackoff: -1, // for a connection that the server has closed meanwhile
		PoolSize: 4 * runtime.GOMAXPROCS(0), ConnMaxIdleTime: 5 * time.Minute,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err == nil && secure {
				c, err = handshake(ctx, c, o.TLS, addr)
			}
			if err != nil {
				return nil, err
			}
			return &guarded{Conn: c}, nil
		},
	}
	return &Store{client: redis.NewClient(opts), prefix: o.Prefix, ttl: o.TTL, password: o.Password}, nil
}

func parseURL(text string) (network, addr string, secure bool, err error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil {
		return "", "", false, errors.New("not a URL of a Redis server without user and password")
	}
	switch u.Scheme {
	case "unix":
		return "unix", u.Path, false, nil
	case "redis", "rediss":
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		return "tcp", net.JoinHostPort(u.Hostname(), port), u.Scheme == "rediss", nil
	}
	return "", "", false, fmt.Errorf("%q is none of redis, rediss, unix", u.Scheme)
}

func handshake(ctx context.Context, c net.Conn, config *tls.Config, addr string) (net.Conn, error) {
	if config == nil {
		config = &tls.Config{}
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

func (s *Store) name(key resultcache.Key) string { return s.prefix + key.String() }

// warmConns is how many connections Warm makes: for a look, and for what is fetched beside it.
const warmConns = 3

// Warm implements resultcache.Warmer.
func (s *Store) Warm(ctx context.Context) {
	var all sync.WaitGroup
	for range warmConns - int(min(s.client.PoolStats().IdleConns, warmConns)) {
		all.Go(func() { _ = s.client.Ping(ctx).Err() }) // the next request says it
	}
	all.Wait()
}

// Get implements resultcache.Store.
func (s *Store) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	b, err := s.client.Get(ctx, s.name(key)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return buf, resultcache.ErrMiss
	case err != nil:
		return buf, s.plain(err)
	}
	return append(buf, b...), nil
}

// Put implements resultcache.Store.
func (s *Store) Put(ctx context.Context, key resultcache.Key, entry []byte) error {
	if len(entry) > MaxEntry {
		return fmt.Errorf("%w: it takes %d bytes", resultcache.ErrTooBig, len(entry))
	}
	return s.written(s.client.Set(ctx, s.name(key), entry, s.ttl).Err())
}

// Drop implements resultcache.Store.
func (s *Store) Drop(ctx context.Context, key resultcache.Key) error {
	return s.written(s.client.Del(ctx, s.name(key)).Err())
}

// Close implements resultcache.Store.
func (s *Store) Close() error { return s.client.Close() }

// written returns what the error of a command that writes means: a replica, and a user without the right, can
// still be read from.
func (s *Store) written(err error) error {
	if err != nil && (redis.HasErrorPrefix(err, "READONLY") || redis.HasErrorPrefix(err, "NOPERM")) {
		return fmt.Errorf("%w: %w", resultcache.ErrReadOnly, s.plain(err))
	}
	return s.plain(err)
}

// plain returns err without what was secret, and in one line.
func (s *Store) plain(err error) error {
	if err == nil {
		return nil
	}
	err = s.password.Hide(err)
	if strings.ContainsAny(err.Error(), "\r\n") {
		err = fmt.Errorf("%q", err.Error())
	}
	return err
}
