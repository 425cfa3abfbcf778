package netcfg

import (
	"slices"
	"testing"
)

// What another part could not do is a fault as long as it says so, whatever the keeper writes meanwhile.
func TestTell(t *testing.T) {
	k := NewKeeper(t.TempDir()+"/netcfg", t.TempDir(), nil)
	faults := func() []string {
		s, err := ReadStatus(k.runDir)
		must(t, err)
		return s.Faults()
	}
	k.Tell("cpu", []string{"governor: refused", "irq 7: refused"})
	if got := faults(); !slices.Equal(got, []string{"governor: refused", "irq 7: refused"}) {
		t.Errorf("before the keeper has looked: %q", got)
	}
	k.report(Report{Failed: []Failure{{Port: "eth1", Text: "eth1: no"}}}, false)
	if got := faults(); !slices.Equal(got, []string{"eth1: no", "governor: refused", "irq 7: refused"}) {
		t.Errorf("beside the keeper's own: %q", got)
	}
	k.Tell("cpu", nil)
	if got := faults(); !slices.Equal(got, []string{"eth1: no"}) {
		t.Errorf("after all is well: %q", got)
	}
}
