package cluster

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/rdistcc/rdistcc/internal/cas"
)

// trialLen is the length of a blob that no server has, in bytes.
const trialLen = 32

// Try has the server take a short blob, which it will only do if there is room, quota, and the right to write. The error is one line.
// ahead is how far its clock is ahead of this machine's, to the second, and told says whether its answers have a time: those of a
// server behind a proxy for HTTP often do.
func (c *Cluster) Try(ctx context.Context) (ahead time.Duration, told bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var head metadata.MD
	err = c.call(ctx, func(ctx context.Context) error {
		_, err := c.server.Capabilities(ctx, grpc.Header(&head))
		return err
	})
	if at := head.Get("date"); err == nil && len(at) == 1 {
		if now, err := http.ParseTime(at[0]); err == nil {
			ahead, told = time.Until(now).Round(time.Second), true
		}
	}
	data := make([]byte, trialLen)
	rand.Read(data) // never fails, says its documentation
	if err == nil {
		err = c.provide(ctx, []cas.Blob{{Digest: cas.DigestOf(data), Data: data}})
	}
	return ahead, told, c.explain(ctx, err)
}
