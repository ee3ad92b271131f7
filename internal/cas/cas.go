// Package cas speaks to a server of the Remote Execution API, version 2: it connects, logs in, and moves blobs to and from the
// server's content-addressable storage. Packages that keep results there, or have actions run, build on it.
package cas

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rdistcc/rdistcc/internal/secret"
)

// Options are the options of Open.
type Options struct {
	URL      string // grpc://HOST[:PORT], grpcs://HOST[:PORT] for TLS, or unix:///PATH
	Instance string // name of the server's instance; most have one without a name
	Header   string // in which Token is sent; empty: authorization
	// Token is sent with every request. In the header authorization, it is a bearer token unless it names its scheme, as
	// in "Basic dXNlcjpwYXNz".
	Token secret.Secret
	TLS   *tls.Config // for grpcs
}

// Client is a connection to a server. It is safe for concurrent use.
type Client struct {
	conn     *grpc.ClientConn
	header   string
	instance string

	capabilities repb.CapabilitiesClient
	blobs        repb.ContentAddressableStorageClient
	streams      bytestream.ByteStreamClient

	mu    sync.Mutex
	token secret.Secret // as it is sent; guarded by mu
}

// The library must not write to stderr: what it would say comes as an error as well. It allows this before its first
// use only, of which a program may have others than Open.
func init() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// Open returns a client of a server. It does not connect yet.
func Open(o Options) (*Client, error) {
	target, secure, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(o.TLS)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithUserAgent("rdistcc"),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		// The caller pauses by itself when there is trouble.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: 5 * time.Second}))
	if err != nil {
		return nil, errors.New("not the address of a server")
	}
	c := &Client{
		conn: conn, header: strings.ToLower(o.Header), instance: o.Instance, capabilities: repb.NewCapabilitiesClient(conn),
		blobs: repb.NewContentAddressableStorageClient(conn), streams: bytestream.NewByteStreamClient(conn),
	}
	if c.header == "" {
		c.header = authorization
	}
	c.Renew(o.Token)
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Conn returns the connection, for the services that this package does not know.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Instance returns the name of the server's instance.
func (c *Client) Instance() string { return c.instance }

const authorization = "authorization"

// Renew makes later requests carry another token. It reports whether it is another one.
func (c *Client) Renew(token secret.Secret) bool {
	if c.header == authorization && token.Set() && !strings.Contains(token.Reveal(), " ") {
		token = secret.New("Bearer " + token.Reveal())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	other := c.token != token
	c.token = token
	return other
}

func (c *Client) sent() secret.Secret {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

func parseURL(text string) (target string, secure bool, err error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil {
		return "", false, errors.New("not a URL of a server of the Remote Execution API without user and password")
	}
	switch {
	case u.Scheme == "unix":
		return "unix://" + u.Path, false, nil
	case u.Scheme == "grpc" && u.Port() == "":
		return "dns:///" + u.Host + ":80", false, nil
	case u.Scheme == "grpc":
		return "dns:///" + u.Host, false, nil
	case u.Scheme == "grpcs": // without a port: 443
		return "dns:///" + u.Host, true, nil
	}
	return "", false, fmt.Errorf("%q is none of grpc, grpcs, unix", u.Scheme)
}

// With returns a context for requests.
func (c *Client) With(ctx context.Context) context.Context {
	token := c.sent()
	if !token.Set() {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, c.header, token.Reveal())
}

// maxText bounds what is repeated of a server's words.
const maxText = 300

// Plain returns err without what was secret, in one line of ordinary length.
func (c *Client) Plain(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	}
	token := c.sent()
	text := token.Hide(err).Error()
	if _, word, ok := strings.Cut(token.Reveal(), " "); ok { // without the scheme in front
		text = secret.New(word).Hide(errors.New(text)).Error()
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	return errors.New(text)
}
