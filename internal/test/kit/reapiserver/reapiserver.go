// Package reapiserver is a server of the Remote Execution API, in memory, for tests: a cache, and on demand one that runs actions
// (execute.go). It takes the
// specification at its word where servers are lenient: digests are computed, offsets are counted, batches have a
// limit, an action must be there before its result, and a result is gone with its files.
package reapiserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Options are the options of Start.
type Options struct {
	Listen   string // empty: a free port of 127.0.0.1
	Instance string
	Header   string // that requests must have; empty: none
	Value    string // which it must have
	ReadOnly bool   // it takes no results from clients
	AnyReads bool   // the header is for requests that write
	NoSHA256 bool
	Batch    int64 // bytes of blobs in a request; 0: no limit but gRPC's
	Silent   bool  // it does not say what Batch is
	Inline   int   // bytes of files that an ActionResult may have in it
	TLS      *tls.Config
	Full     bool          // it takes no blobs
	Ahead    time.Duration // what its clock is ahead; 0: its answers have no time
	Execute  *Execution    // nil: it runs no actions
}

// Server is a running server.
type Server struct {
	Addr string

	o    Options
	grpc *grpc.Server

	mu      sync.Mutex
	blobs   map[string][]byte // by hash; guarded by mu
	results map[string][]byte // ActionResults by the hash of the action; guarded by mu
	calls   map[string]int    // guarded by mu
	bytes   int64             // of blobs that clients have sent; guarded by mu
	engine  engine

	repb.UnimplementedCapabilitiesServer
	repb.UnimplementedActionCacheServer
	repb.UnimplementedContentAddressableStorageServer
	bytestream.UnimplementedByteStreamServer
	repb.UnimplementedExecutionServer
	longrunningpb.UnimplementedOperationsServer
}

// Start starts a server on a free port. It ends with the test, or by Stop.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	l, err := net.Listen("tcp", cmp.Or(o.Listen, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), o: o, blobs: map[string][]byte{hashOf(nil): {}}, results: make(map[string][]byte), calls: make(map[string]int)}
	settings := []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := s.admit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := s.admit(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return handler(srv, stream)
		}),
	}
	if o.TLS != nil {
		settings = append(settings, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	s.grpc = grpc.NewServer(settings...)
	repb.RegisterCapabilitiesServer(s.grpc, s)
	repb.RegisterActionCacheServer(s.grpc, s)
	repb.RegisterContentAddressableStorageServer(s.grpc, s)
	bytestream.RegisterByteStreamServer(s.grpc, s)
	if o.Execute != nil {
		s.openEngine(t)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.grpc.Serve(l) }) // ends by Stop
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
		s.engine.running.Wait()
	})
	return s
}

// Stop ends the server.
func (s *Server) Stop() {
	if s.o.Execute != nil {
		s.engine.stopAll()
	}
	s.grpc.Stop()
}

// Received returns how many bytes of blobs clients have sent.
func (s *Server) Received() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Results returns the number of results.
func (s *Server) Results() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.results)
}

// Calls returns how often a method was called, as in "BatchReadBlobs".
func (s *Server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Evict removes all blobs, as a server that has no room.
func (s *Server) Evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs = make(map[string][]byte)
}

// Change sets what the server allows from now on.
func (s *Server) Change(readOnly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.ReadOnly = readOnly
}

func (s *Server) admit(ctx context.Context, method string) error {
	method = method[strings.LastIndexByte(method, '/')+1:]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method]++
	if s.o.Header == "" || s.o.AnyReads && method != "Write" && !strings.Contains(method, "Update") {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get(s.o.Header); len(got) != 1 || got[0] != s.o.Value {
		return status.Errorf(codes.Unauthenticated, "%q is not a token", got)
	}
	return nil
}

func (s *Server) instance(name string) error {
	if name != s.o.Instance {
		return status.Errorf(codes.InvalidArgument, "no instance %q", name)
	}
	return nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// GetCapabilities implements the API.
func (s *Server) GetCapabilities(ctx context.Context, r *repb.GetCapabilitiesRequest) (*repb.ServerCapabilities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Ahead != 0 {
		if err := grpc.SetHeader(ctx, metadata.Pairs("date", time.Now().Add(s.o.Ahead).UTC().Format(http.TimeFormat))); err != nil {
			return nil, err
		}
	}
	digests := []repb.DigestFunction_Value{repb.DigestFunction_SHA1, repb.DigestFunction_SHA256}
	if s.o.NoSHA256 {
		digests = digests[:1]
	}
	return &repb.ServerCapabilities{ExecutionCapabilities: s.executes(), LowApiVersion: s.o.Execute.low(), HighApiVersion: s.o.Execute.high(), CacheCapabilities: &repb.CacheCapabilities{
		DigestFunctions: digests, ActionCacheUpdateCapabilities: &repb.ActionCacheUpdateCapabilities{UpdateEnabled: !s.o.ReadOnly}, MaxBatchTotalSizeBytes: s.announced(),
	}}, s.instance(r.InstanceName)
}

// load returns a blob. s.mu is held.
func (s *Server) load(d *repb.Digest) ([]byte, error) {
	if b, ok := s.blobs[d.GetHash()]; ok && int64(len(b)) == d.GetSizeBytes() {
		return b, nil
	}
	return nil, status.Errorf(codes.NotFound, "no blob %s of %d bytes", d.GetHash(), d.GetSizeBytes())
}

// store keeps a blob. s.mu is held.
func (s *Server) store(d *repb.Digest, data []byte) error {
	if hashOf(data) != d.GetHash() || int64(len(data)) != d.GetSizeBytes() {
		return status.Errorf(codes.InvalidArgument, "%d bytes are not those of %s", len(data), d)
	}
	s.blobs[d.Hash] = bytes.Clone(data)
	s.bytes += int64(len(data))
	return nil
}

// GetActionResult implements the API.
func (s *Server) GetActionResult(_ context.Context, r *repb.GetActionResultRequest) (*repb.ActionResult, error) {
	if err := s.instance(r.InstanceName); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.results[r.ActionDigest.GetHash()]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such result")
	}
	result := &repb.ActionResult{}
	if err := proto.Unmarshal(text, result); err != nil {
		return nil, err
	}
	for _, f := range result.OutputFiles {
		b, err := s.load(f.Digest)
		if err != nil {
			return nil, err
		}
		for _, name := range r.InlineOutputFiles {
			if name == f.Path && len(b) <= s.o.Inline {
				f.Contents = b
			}
		}
	}
	return result, nil
}

// UpdateActionResult implements the API.
func (s *Server) UpdateActionResult(_ context.Context, r *repb.UpdateActionResultRequest) (*repb.ActionResult, error) {
	if err := s.instance(r.InstanceName); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.ReadOnly {
		return nil, status.Error(codes.Unimplemented, "no results from clients")
	}
	text, err := s.load(r.ActionDigest)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "action: %v", err)
	}
	action, command := &repb.Action{}, &repb.Command{}
	if err := proto.Unmarshal(text, action); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "action: %v", err)
	}
	if text, err = s.load(action.CommandDigest); err == nil {
		err = proto.Unmarshal(text, command)
	}
	if err != nil || len(command.Arguments) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "command: %v", err)
	}
	for _, f := range r.ActionResult.GetOutputFiles() {
		if _, err := s.load(f.Digest); err != nil || f.Path == "" {
			return nil, status.Errorf(codes.FailedPrecondition, "output %q: %v", f.Path, err)
		}
	}
	if text, err = proto.Marshal(r.ActionResult); err != nil {
		return nil, err
	}
	s.results[r.ActionDigest.Hash] = text
	return r.ActionResult, nil
}

// BatchUpdateBlobs implements the API.
func (s *Server) BatchUpdateBlobs(_ context.Context, r *repb.BatchUpdateBlobsRequest) (*repb.BatchUpdateBlobsResponse, error) {
	if err := s.instance(r.InstanceName); err != nil {
		return nil, err
	}
	if s.o.Full {
		return nil, status.Error(codes.ResourceExhausted, "the quota of this project is used up")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, answer := int64(0), &repb.BatchUpdateBlobsResponse{}
	for _, b := range r.Requests {
		n += int64(len(b.Data))
	}
	if s.o.Batch > 0 && n > s.o.Batch {
		return nil, status.Errorf(codes.InvalidArgument, "%d bytes in a batch", n)
	}
	for _, b := range r.Requests {
		answer.Responses = append(answer.Responses, &repb.BatchUpdateBlobsResponse_Response{Digest: b.Digest, Status: status.Convert(s.store(b.Digest, b.Data)).Proto()})
	}
	return answer, nil
}

// BatchReadBlobs implements the API.
func (s *Server) BatchReadBlobs(_ context.Context, r *repb.BatchReadBlobsRequest) (*repb.BatchReadBlobsResponse, error) {
	if err := s.instance(r.InstanceName); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, answer := int64(0), &repb.BatchReadBlobsResponse{}
	for _, d := range r.Digests {
		n += d.SizeBytes
	}
	if s.o.Batch > 0 && n > s.o.Batch {
		return nil, status.Errorf(codes.InvalidArgument, "%d bytes in a batch", n)
	}
	for _, d := range r.Digests {
		b, err := s.load(d)
		answer.Responses = append(answer.Responses, &repb.BatchReadBlobsResponse_Response{Digest: d, Data: b, Status: status.Convert(err).Proto()})
	}
	return answer, nil
}

// FindMissingBlobs implements the API.
func (s *Server) FindMissingBlobs(_ context.Context, r *repb.FindMissingBlobsRequest) (*repb.FindMissingBlobsResponse, error) {
	if err := s.instance(r.InstanceName); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &repb.FindMissingBlobsResponse{}
	for _, d := range r.BlobDigests {
		if _, err := s.load(d); err != nil {
			answer.MissingBlobDigests = append(answer.MissingBlobDigests, d)
		}
	}
	return answer, nil
}

// resource reads the name of a blob: behind the instance's, blobs/HASH/SIZE, and for a write uploads/UUID in front.
func (s *Server) resource(name string, write bool) (*repb.Digest, error) {
	if s.o.Instance != "" {
		rest, ok := strings.CutPrefix(name, s.o.Instance+"/")
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "%q is of another instance", name)
		}
		name = rest
	}
	parts := strings.Split(name, "/")
	if write {
		if len(parts) < 2 || parts[0] != "uploads" || len(parts[1]) != 36 {
			return nil, status.Errorf(codes.InvalidArgument, "%q is not an upload", name)
		}
		parts = parts[2:]
	}
	if len(parts) != 3 || parts[0] != "blobs" {
		return nil, status.Errorf(codes.InvalidArgument, "%q is not a blob", name)
	}
	n, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%q has no size", name)
	}
	return &repb.Digest{Hash: parts[1], SizeBytes: n}, nil
}

// Read implements the API of byte streams.
func (s *Server) Read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	d, err := s.resource(r.ResourceName, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	b, err := s.load(d)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	const piece = 100 << 10
	for b = b[r.ReadOffset:]; len(b) > 0; b = b[min(piece, len(b)):] {
		if err := stream.Send(&bytestream.ReadResponse{Data: b[:min(piece, len(b))]}); err != nil {
			return err
		}
	}
	return nil
}

// Write implements the API of byte streams.
func (s *Server) Write(stream bytestream.ByteStream_WriteServer) error {
	var d *repb.Digest
	var all []byte
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return status.Error(codes.InvalidArgument, "not finished")
		}
		if err != nil {
			return err
		}
		if d == nil {
			if d, err = s.resource(r.ResourceName, true); err != nil {
				return err
			}
		}
		if r.WriteOffset != int64(len(all)) {
			return status.Errorf(codes.InvalidArgument, "offset %d instead of %d", r.WriteOffset, len(all))
		}
		s.mu.Lock()
		_, err = s.load(d)
		if all = append(all, r.Data...); err == nil {
			s.mu.Unlock()
			return stream.SendAndClose(&bytestream.WriteResponse{CommittedSize: d.SizeBytes}) // it is there already
		}
		if r.FinishWrite {
			err = s.store(d, all)
			s.mu.Unlock()
			if err != nil {
				return err
			}
			return stream.SendAndClose(&bytestream.WriteResponse{CommittedSize: int64(len(all))})
		}
		s.mu.Unlock()
	}
}

// announced returns the limit of batches that clients are told; 0: none.
func (s *Server) announced() int64 {
	if s.o.Silent {
		return 0
	}
	return s.o.Batch
}
