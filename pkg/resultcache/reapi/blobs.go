package reapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// blob is a content with its digest.
type blob struct {
	digest *repb.Digest
	data   []byte
}

// present returns b as a list, which is empty if there is none.
func present(b *blob) []blob {
	if b == nil {
		return nil
	}
	return []blob{*b}
}

func digestOf(data []byte) *repb.Digest {
	sum := sha256.Sum256(data)
	return &repb.Digest{Hash: hex.EncodeToString(sum[:]), SizeBytes: int64(len(data))}
}

// outputName is the name of the entry in an ActionResult.
const outputName = "result"

// action stands for a key.
type action struct {
	digest          *repb.Digest // of action
	action, command blob
}

// actionOf returns the action for a key. It must be the same in every version, or results are not found.
func actionOf(key resultcache.Key) action {
	command := encode(&repb.Command{Arguments: []string{"rdistcc", "result", key.String()}, OutputPaths: []string{outputName}})
	a := encode(&repb.Action{CommandDigest: command.digest, InputRootDigest: digestOf(nil)})
	return action{a.digest, a, command}
}

// encode encodes a message as all clients do, or digests would differ: fields in the order of their numbers.
func encode(m proto.Message) blob {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("reapi: a message of ours cannot be encoded: %v", err)) // it has only valid text
	}
	return blob{digestOf(data), data}
}

// write uploads blobs: as many as possible in one request, and those that are too long for one as streams.
func (s *Store) write(ctx context.Context, can *abilities, all []blob) error {
	req := &repb.BatchUpdateBlobsRequest{InstanceName: s.instance, DigestFunction: repb.DigestFunction_SHA256}
	room := can.batch
	for _, b := range all {
		if len(b.data) > room {
			if err := s.writeStream(ctx, b); err != nil {
				return err
			}
			continue
		}
		room -= len(b.data)
		req.Requests = append(req.Requests, &repb.BatchUpdateBlobsRequest_Request{Digest: b.digest, Data: b.data})
	}
	if len(req.Requests) == 0 {
		return nil
	}
	answer, err := s.blobs.BatchUpdateBlobs(ctx, req)
	if err != nil {
		return err
	}
	for _, r := range answer.Responses {
		if err := status.ErrorProto(r.GetStatus()); err != nil {
			return err
		}
	}
	if len(answer.Responses) < len(req.Requests) {
		return errors.New("the server has not said what became of a blob")
	}
	return nil
}

// piece is how much of a blob one message of a stream has, in bytes.
const piece = 256 << 10

func (s *Store) writeStream(ctx context.Context, b blob) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.streams.Write(ctx)
	if err != nil {
		return err
	}
	name := s.resource("uploads", uuid(), "blobs", b.digest.Hash, fmt.Sprint(b.digest.SizeBytes))
	for at := 0; ; {
		n := min(piece, len(b.data)-at)
		req := &bytestream.WriteRequest{ResourceName: name, WriteOffset: int64(at), Data: b.data[at : at+n], FinishWrite: at+n == len(b.data)}
		if err := stream.Send(req); err != nil {
			break // the server has answered: it has the blob already, or there is an error
		}
		if at += n; req.FinishWrite {
			break
		}
	}
	answer, err := stream.CloseAndRecv()
	switch {
	case status.Code(err) == codes.AlreadyExists:
		return nil
	case err != nil:
		return err
	case answer.CommittedSize != b.digest.SizeBytes && answer.CommittedSize != -1: // -1 if it was there, as a compressed blob
		return fmt.Errorf("the server has taken %d of %d bytes", answer.CommittedSize, b.digest.SizeBytes)
	}
	return nil
}

// read appends a blob to buf.
func (s *Store) read(ctx context.Context, can *abilities, d *repb.Digest, buf []byte) ([]byte, error) {
	if d.SizeBytes > int64(can.batch) {
		return s.readStream(ctx, d, buf)
	}
	answer, err := s.blobs.BatchReadBlobs(ctx, &repb.BatchReadBlobsRequest{InstanceName: s.instance, Digests: []*repb.Digest{d}, DigestFunction: repb.DigestFunction_SHA256})
	if err != nil {
		return buf, err
	}
	if len(answer.Responses) != 1 {
		return buf, fmt.Errorf("the server has answered with %d blobs instead of one", len(answer.Responses))
	}
	r := answer.Responses[0]
	if err := status.ErrorProto(r.GetStatus()); err != nil {
		return buf, err
	}
	return append(buf, r.Data...), nil
}

func (s *Store) readStream(ctx context.Context, d *repb.Digest, buf []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.streams.Read(ctx, &bytestream.ReadRequest{ResourceName: s.resource("blobs", d.Hash, fmt.Sprint(d.SizeBytes))})
	if err != nil {
		return buf, err
	}
	at := len(buf)
	if need := at + int(d.SizeBytes); need > cap(buf) {
		buf = append(make([]byte, 0, need), buf...)
	}
	b := buf
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return buf, err
		}
		if len(r.Data) > int(d.SizeBytes)-(len(b)-at) {
			return buf, errors.New("the server sends more of a blob than there is")
		}
		b = append(b, r.Data...)
	}
	if n := len(b) - at; n != int(d.SizeBytes) {
		return buf, fmt.Errorf("the server has sent %d of %d bytes", n, d.SizeBytes)
	}
	return b, nil
}

// resource returns the name of a blob for a stream.
func (s *Store) resource(parts ...string) string {
	if s.instance != "" {
		parts = append([]string{s.instance}, parts...)
	}
	return strings.Join(parts, "/")
}

// uuid returns a random UUID (RFC 9562, section 5.4), which names an upload.
func uuid() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, according to its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
