// Package reapi keeps results in a cache that speaks the Remote Execution API, version 2, such as bazel-remote,
// Buildbarn or NativeLink.
//
//	action cache   the digest of an Action for the key: an ActionResult with one output file
//	CAS            that file, which is the entry, and the Action with its Command
//
// The Action says nothing but the key. It is uploaded because servers may ask for it ("the client MUST first upload
// the Action that produced the result, along with its Command", on UpdateActionResult), and so that their pages show
// what a result is.
//
// Nothing can be removed by this interface. What is dropped is replaced by an ActionResult of a failed action without
// outputs.
package reapi

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
	"github.com/rdistcc/rdistcc/pkg/resultcache"
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

// Store keeps entries in a server. It is safe for concurrent use.
type Store struct {
	conn     *grpc.ClientConn
	header   string
	token    secret.Secret
	instance string

	capabilities repb.CapabilitiesClient
	actions      repb.ActionCacheClient
	blobs        repb.ContentAddressableStorageClient
	streams      bytestream.ByteStreamClient

	mu  sync.Mutex
	can *abilities // guarded by mu; nil: not known yet
}

// MaxEntry is the largest entry that is kept, in bytes.
const MaxEntry = 64 << 20

// The library must not write to stderr: what it would say comes as an error as well. It allows this before its first
// use only, of which a program may have others than Open.
func init() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// Open returns the store of a server. It does not connect yet.
func Open(o Options) (*Store, error) {
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
	s := &Store{
		conn: conn, header: strings.ToLower(o.Header), token: o.Token, instance: o.Instance,
		capabilities: repb.NewCapabilitiesClient(conn), actions: repb.NewActionCacheClient(conn),
		blobs: repb.NewContentAddressableStorageClient(conn), streams: bytestream.NewByteStreamClient(conn),
	}
	if s.header == "" {
		s.header = authorization
	}
	if s.header == authorization && o.Token.Set() && !strings.Contains(o.Token.Reveal(), " ") {
		s.token = secret.New("Bearer " + o.Token.Reveal())
	}
	return s, nil
}

const authorization = "authorization"

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

// with returns a context for requests.
func (s *Store) with(ctx context.Context) context.Context {
	if !s.token.Set() {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, s.header, s.token.Reveal())
}

// Get implements resultcache.Store.
func (s *Store) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	ctx = s.with(ctx)
	can, err := s.abilities(ctx)
	if err != nil {
		return buf, s.plain(err)
	}
	r, err := s.actions.GetActionResult(ctx, &repb.GetActionResultRequest{
		InstanceName: s.instance, ActionDigest: actionOf(key).digest, DigestFunction: repb.DigestFunction_SHA256, InlineOutputFiles: []string{outputName},
	})
	if err != nil {
		return buf, s.missed(err)
	}
	if r.ExitCode != 0 || len(r.OutputFiles) != 1 || r.OutputFiles[0].GetDigest() == nil {
		return buf, resultcache.ErrMiss // dropped, or of a later version
	}
	d, inline := r.OutputFiles[0].Digest, r.OutputFiles[0].Contents
	if d.SizeBytes < 0 || d.SizeBytes > MaxEntry {
		return buf, fmt.Errorf("a file of %d bytes, which no result has", d.SizeBytes)
	}
	if int64(len(inline)) == d.SizeBytes {
		return append(buf, inline...), nil
	}
	b, err := s.read(ctx, can, d, buf)
	if err != nil {
		return buf, s.missed(err)
	}
	return b, nil
}

// missed returns what the error of a look means. A file may have gone before the ActionResult that names it.
func (s *Store) missed(err error) error {
	if status.Code(err) == codes.NotFound {
		return resultcache.ErrMiss
	}
	return s.plain(err)
}

// Put implements resultcache.Store.
func (s *Store) Put(ctx context.Context, key resultcache.Key, entry []byte) error {
	if len(entry) > MaxEntry {
		return fmt.Errorf("%w: it takes %d bytes", resultcache.ErrTooBig, len(entry))
	}
	d := digestOf(entry)
	return s.update(ctx, key, &blob{d, entry}, &repb.ActionResult{OutputFiles: []*repb.OutputFile{{Path: outputName, Digest: d}}})
}

// droppedStatus is the exit status of what takes the place of a dropped result.
const droppedStatus = 1

// Drop implements resultcache.Store.
func (s *Store) Drop(ctx context.Context, key resultcache.Key) error {
	return s.update(ctx, key, nil, &repb.ActionResult{ExitCode: droppedStatus, StderrRaw: []byte("rdistcc has dropped this result\n")})
}

// update makes r the result of the action for key, after it has uploaded that, and file if it is not nil.
func (s *Store) update(ctx context.Context, key resultcache.Key, file *blob, r *repb.ActionResult) error {
	ctx = s.with(ctx)
	can, err := s.abilities(ctx)
	if err != nil {
		return s.plain(err)
	}
	if !can.update {
		s.forget(can) // somebody may allow it
		return fmt.Errorf("%w: the server takes no results from clients (action_cache_update_capabilities)", resultcache.ErrReadOnly)
	}
	a := actionOf(key)
	if err := s.write(ctx, can, append([]blob{a.command, a.action}, present(file)...)); err != nil {
		return s.written(err)
	}
	_, err = s.actions.UpdateActionResult(ctx, &repb.UpdateActionResultRequest{
		InstanceName: s.instance, ActionDigest: a.digest, DigestFunction: repb.DigestFunction_SHA256, ActionResult: r,
	})
	return s.written(err)
}

// Close implements resultcache.Store.
func (s *Store) Close() error { return s.conn.Close() }

// written returns what the error of a request that writes means. Servers that let everybody read answer the writes of
// those whom they do not know by Unauthenticated.
func (s *Store) written(err error) error {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%w: %w", resultcache.ErrReadOnly, s.plain(err))
	}
	return s.plain(err)
}

// maxText bounds what is repeated of a server's words.
const maxText = 300

// plain returns err without what was secret, in one line of ordinary length.
func (s *Store) plain(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	}
	text := s.token.Hide(err).Error()
	if _, word, ok := strings.Cut(s.token.Reveal(), " "); ok { // without the scheme in front
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
