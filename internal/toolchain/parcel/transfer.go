package parcel

// About is what a host says of itself to a client that may send toolchains.
type About struct {
	Machine string `json:"machine"` // as uname -m says
	Kernel  string `json:"kernel"`  // as uname -r says
	// Room is how many bytes the largest toolchain may have that this client could send now.
	Room uint64 `json:"room"`
}

// Offered is the answer to an offer.
type Offered struct {
	ID      string   `json:"id"`
	Missing []Wanted `json:"missing"`
}

// Wanted is a content that a client has to write.
type Wanted struct {
	Name string `json:"name"` // for the address to write it to
	File string `json:"file"` // one of the parcel's files that have it
	Have uint64 `json:"have"` // bytes that are there already
}

// Refusal says why something was refused.
type Refusal struct {
	Cause string `json:"cause"` // one of the words below
	Text  string `json:"text"`
}

// Causes of refusals.
const (
	CauseMalformed = "malformed"
	CauseQuota     = "quota"
	CauseUnknown   = "unknown"
	CauseWrong     = "wrong"
	CauseBusy      = "busy"
	CauseDisk      = "disk"
)
