// Package s3 keeps results in a bucket of Amazon S3, or of a service with its interface.
//
// An entry is the object PREFIX, the first two digits of the key, a slash and the whole key: ab/abcdef.... How long
// it stays is up to the lifecycle rules of the bucket.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Options are the options of Open.
type Options struct {
	Endpoint   string // http://HOST[:PORT] or https://HOST[:PORT]
	Bucket     string
	Prefix     string     // of the names of all objects
	Region     string     // empty: the service is asked
	Addressing Addressing // where the bucket stands in a request
	Login      Login
	TLS        *tls.Config // for https
}

// Addressing says where in a request the name of the bucket stands.
type Addressing string

// In the path, as most services take it, in the name of the host, or as it is usual for the host.
const (
	Auto Addressing = "auto"
	Path Addressing = "path"
	Host Addressing = "host"
)

// Store keeps entries in a bucket. It is safe for concurrent use.
type Store struct {
	client    minio.Core
	transport *http.Transport
	bucket    string
	prefix    string
	region    atomic.Bool   // it is known where the bucket is
	locating  chan struct{} // has an element while that is asked
}

// MaxEntry is the largest entry that is kept, in bytes.
const MaxEntry = 64 << 20

// Open returns the store in a bucket. It does not connect yet.
func Open(o Options) (*Store, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.User != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("not a URL of an S3 service without user and password")
	}
	lookup, known := map[Addressing]minio.BucketLookupType{"": minio.BucketLookupAuto, Auto: minio.BucketLookupAuto, Path: minio.BucketLookupPath, Host: minio.BucketLookupDNS}[o.Addressing]
	if !known {
		return nil, fmt.Errorf("addressing %q is none of auto, path, host", o.Addressing)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression: true, // entries are compressed, and a length is to be that of the entry
	}
	client, err := minio.NewCore(u.Host, &minio.Options{
		Creds: o.Login.credentials(), Secure: u.Scheme == "https", Transport: transport, Region: o.Region, BucketLookup: lookup,
		MaxRetries: 1, // the caller knows what to do about trouble
	})
	if err != nil {
		return nil, err
	}
	s := &Store{client: *client, transport: transport, bucket: o.Bucket, prefix: o.Prefix, locating: make(chan struct{}, 1)}
	s.region.Store(o.Region != "")
	return s, nil
}

// locate asks where the bucket is, if no setting says it and it was not asked before. It does so for all requests that begin at the same
// time: otherwise each would.
func (s *Store) locate(ctx context.Context) error {
	if s.region.Load() {
		return nil
	}
	select {
	case s.locating <- struct{}{}:
		defer func() { <-s.locating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.region.Load() {
		return nil
	}
	_, err := s.client.GetBucketLocation(ctx, s.bucket)
	s.region.Store(err == nil)
	return err
}

// Warm implements resultcache.Warmer. One request makes a connection, and those that follow make others if it is busy.
func (s *Store) Warm(ctx context.Context) {
	if s.region.Load() {
		_, _ = s.client.BucketExists(ctx, s.bucket) // the next request says it
		return
	}
	_ = s.locate(ctx) // as above
}

func (s *Store) name(key resultcache.Key) string {
	k := key.String()
	return s.prefix + k[:2] + "/" + k
}

// Get implements resultcache.Store.
func (s *Store) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	if err := s.locate(ctx); err != nil {
		return buf, s.missed(ctx, err)
	}
	body, info, _, err := s.client.GetObject(ctx, s.bucket, s.name(key), minio.GetObjectOptions{})
	if err != nil {
		return buf, s.missed(ctx, err)
	}
	defer body.Close()
	if info.Size < 0 || info.Size > MaxEntry {
		return buf, fmt.Errorf("an object of %d bytes, which no result has", info.Size)
	}
	at := len(buf)
	if need := at + int(info.Size); need > cap(buf) {
		buf = append(make([]byte, 0, need), buf...)
	}
	b := buf[at : at+int(info.Size)]
	if _, err := io.ReadFull(body, b); err != nil {
		return buf, plain(ctx, err)
	}
	return buf[:at+len(b)], nil
}

// missed returns what the error of a look means.
func (s *Store) missed(ctx context.Context, err error) error {
	switch minio.ToErrorResponse(err).Code {
	case minio.NoSuchKey:
		return resultcache.ErrMiss
	case minio.AccessDenied:
		return fmt.Errorf("%w (s3:GetObject is needed, and s3:ListBucket too, without which an object that is not there looks like this)", plain(ctx, err))
	}
	return plain(ctx, err)
}

// Put implements resultcache.Store.
func (s *Store) Put(ctx context.Context, key resultcache.Key, entry []byte) error {
	if len(entry) > MaxEntry {
		return fmt.Errorf("%w: it takes %d bytes", resultcache.ErrTooBig, len(entry))
	}
	if err := s.locate(ctx); err != nil {
		return written(ctx, err)
	}
	sum := sha256.Sum256(entry)
	_, err := s.client.PutObject(ctx, s.bucket, s.name(key), bytes.NewReader(entry), int64(len(entry)), "", hex.EncodeToString(sum[:]),
		minio.PutObjectOptions{ContentType: "application/octet-stream"})
	return written(ctx, err)
}

// Drop implements resultcache.Store.
func (s *Store) Drop(ctx context.Context, key resultcache.Key) error {
	if err := s.locate(ctx); err != nil {
		return written(ctx, err)
	}
	err := s.client.RemoveObject(ctx, s.bucket, s.name(key), minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return written(ctx, err)
}

// Close implements resultcache.Store.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// written returns what the error of a request that writes means.
func written(ctx context.Context, err error) error {
	if err != nil && minio.ToErrorResponse(err).Code == minio.AccessDenied {
		return fmt.Errorf("%w: %w", resultcache.ErrReadOnly, plain(ctx, err))
	}
	return plain(ctx, err)
}

// maxText bounds what is repeated of a server's words.
const maxText = 300

// plain returns err in one line of ordinary length, without the URL that the name of the entry is in.
func plain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if r := minio.ToErrorResponse(err); r.Code != "" && r.Code == strconv.Itoa(r.StatusCode) {
		err = fmt.Errorf("the server answers with status %d", r.StatusCode)
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, err.Error())
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
