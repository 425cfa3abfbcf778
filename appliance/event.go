package appliance

import (
	"time"

	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// Event is a fact that has happened. It carries its time, since Apply reads no clock.
type Event interface {
	When() time.Time
}

// PortsSeen carries all ports there are, in no particular order.
type PortsSeen struct {
	At    time.Time
	Ports []Port
}

// HealthSeen carries what the box measured of itself.
type HealthSeen struct {
	At     time.Time
	Health Health
}

// FindingsSeen carries all findings of the doctor.
type FindingsSeen struct {
	At       time.Time
	Findings []Finding
}

// FaultsSeen carries everything that the named part could not do though it goes on; it replaces what the part said
// before, so no titles means that all is well.
type FaultsSeen struct {
	At     time.Time
	Task   string
	Titles []string
}

// TaskDown says that a Task failed and will be started again.
type TaskDown struct {
	At   time.Time
	Task string
	Err  string
}

// TaskUp says that a Task that had failed runs again.
type TaskUp struct {
	At   time.Time
	Task string
}

// ConfigLoaded carries a checked config that is in force from now on.
type ConfigLoaded struct {
	At     time.Time
	Config config.Config
	Keys   []config.Key // every key with its value, its origin and what it may be set to
	Board  string       // name of the board's profile with this config; "": as before
}

// ConfigRejected says why a new config was not taken; the last good one stays in force.
type ConfigRejected struct {
	At  time.Time
	Err string
}

// SettingsChanged says that a person chose another value for a settable key, with the buttons or on the web. It is a wish
// until the config that holds it is loaded.
type SettingsChanged struct {
	At    time.Time
	Key   string // as in settings.toml: "test.seconds"
	Value any    // string, int64 or []string
}

// SettingsStored says that the wishes were dealt with, well (the config with them follows) or not (Err says why).
type SettingsStored struct {
	At   time.Time
	Keys []string
	Err  string
}

// ButtonPressed is one press of a key, after debounce.
type ButtonPressed struct {
	At  time.Time
	Key Key
}

// TestRequested asks for a run of one or more tests after one another. It is ignored while another run is asked for.
type TestRequested struct {
	At    time.Time
	Run   string
	Specs []throughput.Spec
	IDs   []string // one for each Spec
}

// CancelRequested asks for the end of a running test, and of the run it belongs to.
type CancelRequested struct {
	At time.Time
	ID string
}

// TestStarted says that payload is about to flow.
type TestStarted struct {
	At   time.Time
	Test Test
}

// ClientsWaiting carries all clients that wait for their turn, the oldest first; none says that nobody does any more.
type ClientsWaiting struct {
	At    time.Time
	Tests []Test
}

// TestProgressed carries the latest figures of a running test.
type TestProgressed struct {
	At       time.Time
	ID       string
	Progress throughput.Progress
}

// TestFinished carries the record of a test that has ended, well or not. The record is on the disk by then, if it can
// be at all.
type TestFinished struct {
	At     time.Time
	ID     string         // that the test had while it ran
	Record results.Record // may have got another, where the store could not be read before
	Last   bool           // the run it belongs to is done
}

// ResultsSeen carries the last results of earlier runs, newest first, when the box starts.
type ResultsSeen struct {
	At      time.Time
	Results []results.Record
}

// TestFailed says that a test ended without a record: whoever ran it died. The run it belongs to is done.
type TestFailed struct {
	At  time.Time
	ID  string
	Err string
}

// TargetsSeen carries the servers that were looked for, and whether they answered.
type TargetsSeen struct {
	At    time.Time
	Found []Target
}

// Ticked moves the time on, about once a second.
type Ticked struct {
	At     time.Time
	Uptime time.Duration // of the box
	Synced bool          // the clock is set by a time server
}

// When returns the time of the event.
func (e PortsSeen) When() time.Time       { return e.At }
func (e HealthSeen) When() time.Time      { return e.At }
func (e FindingsSeen) When() time.Time    { return e.At }
func (e FaultsSeen) When() time.Time      { return e.At }
func (e TaskDown) When() time.Time        { return e.At }
func (e TaskUp) When() time.Time          { return e.At }
func (e ConfigLoaded) When() time.Time    { return e.At }
func (e ConfigRejected) When() time.Time  { return e.At }
func (e SettingsChanged) When() time.Time { return e.At }
func (e SettingsStored) When() time.Time  { return e.At }
func (e ButtonPressed) When() time.Time   { return e.At }
func (e TestRequested) When() time.Time   { return e.At }
func (e CancelRequested) When() time.Time { return e.At }
func (e TestStarted) When() time.Time     { return e.At }
func (e ClientsWaiting) When() time.Time  { return e.At }
func (e TestProgressed) When() time.Time  { return e.At }
func (e TestFinished) When() time.Time    { return e.At }
func (e ResultsSeen) When() time.Time     { return e.At }
func (e TestFailed) When() time.Time      { return e.At }
func (e TargetsSeen) When() time.Time     { return e.At }
func (e Ticked) When() time.Time          { return e.At }
