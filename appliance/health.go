package appliance

import "time"

// Health is what the box measures of itself. A nil pointer is unknown.
type Health struct {
	TemperatureC       *float64  `json:"temperature_c"`
	Governor           string    `json:"governor"`             // of every policy; "mixed" where they differ; "" without cpufreq
	FrequencyKHz       *int      `json:"frequency_khz"`        // of the fastest core now
	CorePercent        []float64 `json:"core_percent"`         // busy share of each core since the last look, 0-100
	BusiestCorePercent *float64  `json:"busiest_core_percent"` //
}

// Severity of a Finding.
type Severity string

// A finding of severity Info costs nothing here, Warn can hold a test below line rate, Fault does now.
const (
	Info  Severity = "info"
	Warn  Severity = "warn"
	Grave Severity = "fault"
)

// Finding is one thing that holds the box below line rate, and its remedy.
type Finding struct {
	Code      string   `json:"code"` // kebab-case, stable
	Severity  Severity `json:"severity"`
	Port      string   `json:"port"`  // label of the port; "" for the box as a whole
	Title     string   `json:"title"` // at most 21 characters: one line of a 128 pixel display
	Detail    string   `json:"detail"`
	Remedy    string   `json:"remedy"`
	Automatic bool     `json:"automatic"` // the box may do it itself
	Done      bool     `json:"done"`
}

// Fault is something that does not work though the box goes on. Task and title together name it.
type Fault struct {
	Task  string    `json:"task"`
	Title string    `json:"title"`
	Since time.Time `json:"since"`
	Down  bool      `json:"-"` // the supervisor says so: the task failed and is started again
}
