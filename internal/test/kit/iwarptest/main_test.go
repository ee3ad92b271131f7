package iwarptest

import "testing"

// No test leaves a goroutine or a descriptor behind.
func TestMain(m *testing.M) { Main(m) }
