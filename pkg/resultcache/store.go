package resultcache

import "context"

// Store keeps entries, each as a string of bytes (Entry.Append). Its methods may be called concurrently. It
// need not keep what it is given, and it is not trusted: readers verify what it returns.
type Store interface {
	// Get appends the entry of key to buf, whose content it may overwrite beyond its length, and returns
	// the extended slice. It returns ErrMiss if there is none; other errors are trouble with the store.
	Get(ctx context.Context, key Key, buf []byte) ([]byte, error)
	// Put keeps an entry. It does not keep the slice.
	Put(ctx context.Context, key Key, entry []byte) error
	// Drop removes the entry of key, if there is one, because it is damaged or wrong.
	Drop(ctx context.Context, key Key) error
	// Close ends the use of the store. Nothing may be under way.
	Close() error
}

// Warmer is a Store that can be made ready before anything is asked of it.
type Warmer interface {
	// Warm connects, as far as nothing is connected. What goes wrong will do so again in the next request, which says it.
	Warm(ctx context.Context)
}

// Manifests keeps manifests (Manifest.Append), for a Store that has a second step. It is used like the Store.
type Manifests interface {
	// GetManifest returns the manifest of key, or ErrMiss.
	GetManifest(ctx context.Context, key Key) ([]byte, error)
	PutManifest(ctx context.Context, key Key, manifest []byte) error
	DropManifest(ctx context.Context, key Key) error
}

// Tiers in which a result can be, as reports and metrics name them.
const (
	TierManager = "manager" // on the build host's disk
	TierFarm    = "farm"    // in the memory of the compile hosts
	TierRedis   = "redis"
	TierS3      = "s3"
	TierREAPI   = "reapi" // Remote Execution API
)

// Tiers returns all of them, in the order in which they are asked.
func Tiers() []string { return []string{TierManager, TierFarm, TierRedis, TierS3, TierREAPI} }
