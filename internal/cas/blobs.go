package cas

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Blob is a content with its digest.
type Blob struct {
	Digest *repb.Digest
	Data   []byte                        // if Open is nil
	Open   func() (io.ReadCloser, error) // opens the content; an upload calls it once
}

// DigestOf returns the digest of a content.
func DigestOf(data []byte) *repb.Digest { return DigestFor(sha256.Sum256(data), int64(len(data))) }

// DigestFor returns the digest of n bytes with a SHA-256.
func DigestFor(sum [sha256.Size]byte, n int64) *repb.Digest {
	return &repb.Digest{Hash: hex.EncodeToString(sum[:]), SizeBytes: n}
}

// Encode encodes a message as all clients do, or digests would differ: fields in the order of their numbers. All its text must
// be valid.
func Encode(m proto.Message) Blob {
	b, err := TryEncode(m)
	if err != nil {
		panic(fmt.Sprintf("cas: a message of ours cannot be encoded: %v", err))
	}
	return b
}

// TryEncode is Encode for messages with text from others, which fails if that is not UTF-8.
func TryEncode(m proto.Message) (Blob, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return Blob{}, err
	}
	return Blob{Digest: DigestOf(data), Data: data}, nil
}

// Capabilities asks the server what it can do.
func (c *Client) Capabilities(ctx context.Context, options ...grpc.CallOption) (*repb.ServerCapabilities, error) {
	return c.capabilities.GetCapabilities(ctx, &repb.GetCapabilitiesRequest{InstanceName: c.instance}, options...)
}

// maxBatch is the most that one request or answer may have, in bytes of blobs. Servers need not say how long a message
// they take: Buildbarn may be set to take 2 MiB, and says nothing. Longer blobs go as streams, at no more requests.
const maxBatch = 1 << 20

// Batch returns how many bytes of blobs one request or answer may have in all. The error says why the server is of no use.
func Batch(can *repb.CacheCapabilities) (int, error) {
	if can == nil {
		return 0, errors.New("the server has no cache")
	}
	if !slices.Contains(can.DigestFunctions, repb.DigestFunction_SHA256) {
		return 0, errors.New("the server does not know SHA256 as a digest function")
	}
	if n := can.MaxBatchTotalSizeBytes; n > 0 && n < maxBatch { // 0: no limit of its own
		return int(n), nil
	}
	return maxBatch, nil
}

// mostAsked is how many digests one request may name: each takes some 80 bytes, and servers take messages of 4 MiB, or 2.
const mostAsked = 10000

// Missing returns which of the blobs the server does not have.
func (c *Client) Missing(ctx context.Context, all []*repb.Digest) (missing []*repb.Digest, err error) {
	for some := range slices.Chunk(all, mostAsked) {
		answer, err := c.blobs.FindMissingBlobs(ctx, &repb.FindMissingBlobsRequest{InstanceName: c.instance, BlobDigests: some, DigestFunction: repb.DigestFunction_SHA256})
		if err != nil {
			return nil, err
		}
		missing = append(missing, answer.MissingBlobDigests...)
	}
	return missing, nil
}

// Write uploads blobs: those that are short in as few requests as possible, which have batch bytes of them at most, and others as
// streams.
func (c *Client) Write(ctx context.Context, batch int, all []Blob) error {
	var some []*repb.BatchUpdateBlobsRequest_Request
	room := batch
	for i := range all {
		b := &all[i]
		n := b.Digest.SizeBytes
		if n > int64(batch) {
			if err := c.writeStream(ctx, b); err != nil {
				return err
			}
			continue
		}
		if n > int64(room) || len(some) == mostAsked {
			if err := c.writeBatch(ctx, some); err != nil {
				return err
			}
			some, room = nil, batch
		}
		data, err := b.read()
		if err != nil {
			return err
		}
		room -= len(data)
		some = append(some, &repb.BatchUpdateBlobsRequest_Request{Digest: b.Digest, Data: data})
	}
	return c.writeBatch(ctx, some)
}

// read returns the whole content.
func (b *Blob) read() ([]byte, error) {
	if b.Open == nil {
		return b.Data, nil
	}
	r, err := b.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func (c *Client) writeBatch(ctx context.Context, some []*repb.BatchUpdateBlobsRequest_Request) error {
	if len(some) == 0 {
		return nil
	}
	answer, err := c.blobs.BatchUpdateBlobs(ctx, &repb.BatchUpdateBlobsRequest{InstanceName: c.instance, Requests: some, DigestFunction: repb.DigestFunction_SHA256})
	if err != nil {
		return err
	}
	for _, r := range answer.Responses {
		if err := status.ErrorProto(r.GetStatus()); err != nil {
			return err
		}
	}
	if len(answer.Responses) < len(some) {
		return errors.New("the server has not said what became of a blob")
	}
	return nil
}

// piece is how much of a blob one message of a stream has, in bytes.
const piece = 256 << 10

func (c *Client) writeStream(ctx context.Context, b *Blob) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var from io.Reader = bytes.NewReader(b.Data)
	if b.Open != nil {
		r, err := b.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		from = r
	}
	stream, err := c.streams.Write(ctx)
	if err != nil {
		return err
	}
	name := c.resource("uploads", uuid(), "blobs", b.Digest.Hash, fmt.Sprint(b.Digest.SizeBytes))
	buf := make([]byte, piece)
	for at := int64(0); ; {
		data := buf[:min(piece, b.Digest.SizeBytes-at)]
		if _, err := io.ReadFull(from, data); err != nil {
			return err
		}
		last := at+int64(len(data)) == b.Digest.SizeBytes
		if last { // a reader that checks the content says so at its end
			if n, err := from.Read(make([]byte, 1)); n > 0 || err != io.EOF {
				return fmt.Errorf("a content is not the %d bytes that it was: %w", b.Digest.SizeBytes, errors.Join(err, io.ErrUnexpectedEOF))
			}
		}
		req := &bytestream.WriteRequest{ResourceName: name, WriteOffset: at, Data: data, FinishWrite: last}
		if err := stream.Send(req); err != nil {
			break // the server has answered: it has the blob already, or there is an error
		}
		if at += int64(len(data)); last {
			break
		}
	}
	answer, err := stream.CloseAndRecv()
	switch {
	case status.Code(err) == codes.AlreadyExists:
		return nil
	case err != nil:
		return err
	case answer.CommittedSize != b.Digest.SizeBytes && answer.CommittedSize != -1: // -1 if it was there, as a compressed blob
		return fmt.Errorf("the server has taken %d of %d bytes", answer.CommittedSize, b.Digest.SizeBytes)
	}
	return nil
}

// Read appends a blob to buf. What it reads is not checked, but for its length where that comes as a stream.
func (c *Client) Read(ctx context.Context, batch int, d *repb.Digest, buf []byte) ([]byte, error) {
	if d.SizeBytes > int64(batch) {
		return c.readStream(ctx, d, buf)
	}
	answer, err := c.blobs.BatchReadBlobs(ctx, &repb.BatchReadBlobsRequest{InstanceName: c.instance, Digests: []*repb.Digest{d}, DigestFunction: repb.DigestFunction_SHA256})
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

func (c *Client) readStream(ctx context.Context, d *repb.Digest, buf []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.streams.Read(ctx, &bytestream.ReadRequest{ResourceName: c.resource("blobs", d.Hash, fmt.Sprint(d.SizeBytes))})
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
func (c *Client) resource(parts ...string) string {
	if c.instance != "" {
		parts = append([]string{c.instance}, parts...)
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
