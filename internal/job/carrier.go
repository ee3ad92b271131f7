package job

import "fmt"

// Carrier is the way in which a job's source gets to the host.
type Carrier uint8

// Carriers.
const (
	Write Carrier = iota // RDMA Write into the slot of its credit, ahead of the Job
	Eager                // inside the Send of the Job
	Pull                 // the daemon's RDMA Reads out of a window that the Job offers
	numCarriers
)

var carrierWords = [numCarriers]string{"write", "eager", "pull"}

// String returns the word that settings, metrics and traces use.
func (c Carrier) String() string {
	if c < numCarriers {
		return carrierWords[c]
	}
	return "unknown"
}

// Carrier returns how m's source travels.
func (m *Job) Carrier() Carrier {
	switch {
	case m.Carried != nil:
		return Eager
	case m.Source.STag != 0:
		return Pull
	}
	return Write
}

// CarrierNames returns the words for all carriers.
func CarrierNames() []string { return carrierWords[:] }

// ParseCarrier returns the Carrier for a word.
func ParseCarrier(word string) (Carrier, error) {
	for c, w := range carrierWords {
		if w == word {
			return Carrier(c), nil
		}
	}
	return 0, fmt.Errorf("%q is no carrier: write, eager or pull", word)
}
