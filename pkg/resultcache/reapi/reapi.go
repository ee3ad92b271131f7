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
	"fmt"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Store keeps entries in a server. It is safe for concurrent use.
type Store struct {
	server  *cas.Client
	actions repb.ActionCacheClient

	mu  sync.Mutex
	can *abilities // guarded by mu; nil: not known yet
}

// MaxEntry is the largest entry that is kept, in bytes.
const MaxEntry = 64 << 20

// Open returns the store of a server. It does not connect yet.
func Open(o cas.Options) (*Store, error) {
	c, err := cas.Open(o)
	if err != nil {
		return nil, err
	}
	return &Store{server: c, actions: repb.NewActionCacheClient(c.Conn())}, nil
}

// Get implements resultcache.Store.
func (s *Store) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	ctx = s.server.With(ctx)
	can, err := s.abilities(ctx)
	if err != nil {
		return buf, s.server.Plain(err)
	}
	r, err := s.actions.GetActionResult(ctx, &repb.GetActionResultRequest{
		InstanceName: s.server.Instance(), ActionDigest: actionOf(key).digest, DigestFunction: repb.DigestFunction_SHA256, InlineOutputFiles: []string{outputName},
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
	b, err := s.server.Read(ctx, can.batch, d, buf)
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
	return s.server.Plain(err)
}

// Put implements resultcache.Store.
func (s *Store) Put(ctx context.Context, key resultcache.Key, entry []byte) error {
	if len(entry) > MaxEntry {
		return fmt.Errorf("%w: it takes %d bytes", resultcache.ErrTooBig, len(entry))
	}
	d := cas.DigestOf(entry)
	return s.update(ctx, key, &cas.Blob{Digest: d, Data: entry}, &repb.ActionResult{OutputFiles: []*repb.OutputFile{{Path: outputName, Digest: d}}})
}

// droppedStatus is the exit status of what takes the place of a dropped result.
const droppedStatus = 1

// Drop implements resultcache.Store.
func (s *Store) Drop(ctx context.Context, key resultcache.Key) error {
	return s.update(ctx, key, nil, &repb.ActionResult{ExitCode: droppedStatus, StderrRaw: []byte("rdistcc has dropped this result\n")})
}

// update makes r the result of the action for key, after it has uploaded that, and file if it is not nil.
func (s *Store) update(ctx context.Context, key resultcache.Key, file *cas.Blob, r *repb.ActionResult) error {
	ctx = s.server.With(ctx)
	can, err := s.abilities(ctx)
	if err != nil {
		return s.server.Plain(err)
	}
	if !can.update {
		s.forget(can) // somebody may allow it
		return fmt.Errorf("%w: the server takes no results from clients (action_cache_update_capabilities)", resultcache.ErrReadOnly)
	}
	a := actionOf(key)
	if err := s.server.Write(ctx, can.batch, append([]cas.Blob{a.command, a.action}, present(file)...)); err != nil {
		return s.written(err)
	}
	_, err = s.actions.UpdateActionResult(ctx, &repb.UpdateActionResultRequest{
		InstanceName: s.server.Instance(), ActionDigest: a.digest, DigestFunction: repb.DigestFunction_SHA256, ActionResult: r,
	})
	return s.written(err)
}

// Close implements resultcache.Store.
func (s *Store) Close() error { return s.server.Close() }

// written returns what the error of a request that writes means. Servers that let everybody read answer the writes of
// those whom they do not know by Unauthenticated.
func (s *Store) written(err error) error {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%w: %w", resultcache.ErrReadOnly, s.server.Plain(err))
	}
	return s.server.Plain(err)
}
