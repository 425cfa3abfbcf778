package netcfg

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"linerate/appliance"
)

// StatusFile is the file in the run folder that says what the keeper did.
const StatusFile = "netcfg.json"

// Status is the content of netcfg.json: what the keeper saw, did and could not do.
type Status struct {
	Time          time.Time        `json:"time"`           // of the last change of anything below
	Manager       string           `json:"manager"`        // who owns the ports: "none", or their managers
	Held          bool             `json:"held"`           // put back as found by a person: everything is left alone
	Safe          string           `json:"safe"`           // why the network is left alone altogether; "": it is not
	Change        *Change          `json:"network_change"` // what waits to be confirmed; null: nothing
	Answers       []Answer         `json:"answers"`        // to the last 16 requests, oldest first
	Ports         []appliance.Port `json:"ports"`          // as seen after the last change
	Done          []Done           `json:"done"`           // the last 50 steps, oldest first
	Failed        []Failure        `json:"failed"`         // what could not be done and is still wanted
	Other         []string         `json:"other"`          // what other parts of the keeper's process could not do; a line each
	NotApplicable []string         `json:"not_applicable"` // what is asked for and does not exist here; a line each
	Notes         []string         `json:"notes"`          // what is not, or not quite, as asked, and why; a line each
}

// Done is a step that was done.
type Done struct {
	Time time.Time `json:"time"`
	Step
}

// Bounds of netcfg.json, for the writer and the reader.
const (
	maxStatusBytes = 1 << 20
	maxDone        = 50
	maxLines       = 100
)

// Faults lists what could not be done.
func (s Status) Faults() []string {
	out := []string{}
	if s.Safe != "" {
		out = append(out, s.Safe)
	}
	for _, f := range s.Failed {
		out = append(out, f.Text)
	}
	return append(out, s.Other...)
}

// ReadStatus reads netcfg.json from the run folder; fs.ErrNotExist says that no keeper has run.
func ReadStatus(runDir string) (Status, error) {
	path := filepath.Join(runDir, StatusFile)
	b, err := readRegular(path, maxStatusBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Status{}, err
	}
	var s Status
	if err == nil {
		s, err = parseStatus(b)
	}
	if err != nil {
		return Status{}, fmt.Errorf("what the network keeper did: %s: %w", path, err)
	}
	return s, nil
}

func parseStatus(b []byte) (Status, error) {
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return Status{}, err
	}
	if len(s.Done) > maxDone || len(s.Failed) > maxLines || len(s.Other) > maxLines || len(s.NotApplicable) > maxLines || len(s.Notes) > maxLines ||
		len(s.Answers) > maxAnswers {
		return Status{}, errors.New("holds more than a keeper writes")
	}
	return s, nil
}

// writeStatus replaces netcfg.json as a whole.
func writeStatus(runDir string, s Status) error {
	s.Failed, s.NotApplicable, s.Notes = first(s.Failed), first(s.NotApplicable), first(s.Notes)
	s.Other = first(s.Other)
	s.Answers = append([]Answer{}, s.Answers...)
	s.Done = append([]Done{}, s.Done[max(0, len(s.Done)-maxDone):]...)
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(runDir, StatusFile), append(b, '\n'), 0o644, false)
}

func first[T any](list []T) []T {
	return append([]T{}, list[:min(len(list), maxLines)]...)
}

// sameStatus says whether two differ in nothing but their time.
func sameStatus(a, b Status) bool {
	a.Time, b.Time = time.Time{}, time.Time{}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && slices.Equal(x, y)
}
