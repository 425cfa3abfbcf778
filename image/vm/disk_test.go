package vm

import (
	"math/rand/v2"
	"testing"
	"time"
)

// newChance is a source of chance whose seed is printed, so that a failure can be had again.
func newChance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("note: seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
