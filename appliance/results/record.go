package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"linerate/appliance/throughput"
)

// Values of Stamp.Clock.
const (
	Synced   = "synced"   // the time of day could be trusted
	Unsynced = "unsynced" // it could not
)

// Stamp is what the store adds to a result. Time, BootID and UptimeS tell when the result was stored, just after its test
// had ended.
type Stamp struct {
	ID      string    `json:"id"`  // Seq in decimal
	Seq     uint64    `json:"seq"` // from 1; the order of all results
	Run     string    `json:"run"` // the same for the results of one press or command
	Time    time.Time `json:"time"`
	Clock   string    `json:"clock"`   // synced | unsynced
	BootID  string    `json:"boot_id"` // of the kernel, another at each boot
	UptimeS float64   `json:"uptime_s"`
}

// Record is a stored result. Its JSON has the result's names in their order.
type Record struct {
	Stamp
	throughput.Result
}

// Bounds of one record. Texts may come from a stranger's client.
const (
	maxRecordBytes = 256 << 10
	maxText        = 1 << 10 // bytes of one text
	maxList        = 256     // entries of one list of texts
)

// encode returns the record as JSON, at most maxRecordBytes. It keeps what can be kept: texts and lists are shortened, a
// number that JSON cannot write becomes unknown.
func encode(r Record) ([]byte, error) {
	r = bounded(r)
	for limit := throughput.MaxIntervals; ; limit /= 4 {
		r.Intervals = throughput.MergeIntervals(r.Intervals, max(limit, 1))
		b, err := marshal(r)
		if err != nil {
			return nil, fmt.Errorf("write result %s as JSON: %w", r.ID, err)
		}
		if len(b) <= maxRecordBytes {
			return b, nil
		}
		if limit == 0 {
			return nil, fmt.Errorf("result %s is %d bytes of JSON: at most %d are kept", r.ID, len(b), maxRecordBytes)
		}
	}
}

func marshal(r Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// bounded returns a copy without shared memory that fits a line of the log.
func bounded(r Record) Record {
	r.Intervals = append([]throughput.Interval{}, throughput.MergeIntervals(r.Intervals, throughput.MaxIntervals)...)
	r.SharedWith = append([]string{}, r.SharedWith[:min(len(r.SharedWith), maxList)]...)
	r.Findings = append([]string{}, r.Findings[:min(len(r.Findings), maxList)]...)
	clean(reflect.ValueOf(&r).Elem())
	return r
}

// clean walks a struct that is our own copy: long texts are cut, NaN and the infinities become null or 0.
func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			clean(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Pointer:
		if f, ok := v.Interface().(*float64); ok && f != nil && !finite(*f) {
			v.SetZero()
		}
	case reflect.Float64:
		if !finite(v.Float()) {
			v.SetFloat(0)
		}
	case reflect.String:
		if s := v.String(); len(s) > maxText {
			v.SetString(strings.ToValidUTF8(s[:maxText], ""))
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// What a stamp may hold. JSON numbers are exact up to 2^53; no box is up for a century.
const (
	maxSeq     = 1 << 53
	maxUptimeS = 100 * 365 * 86400
)

var errRecord = errors.New("a record without a good stamp")

func (s Stamp) check() error {
	named := s.Seq > 0 && s.Seq <= maxSeq && s.ID == strconv.FormatUint(s.Seq, 10)
	if !named || !(s.UptimeS >= 0 && s.UptimeS <= maxUptimeS) {
		return errRecord
	}
	return nil
}

// decode reads what encode wrote. A record of a later version may have more keys.
func decode(b []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, err
	}
	if err := r.check(); err != nil {
		return Record{}, err
	}
	return bounded(r), nil
}
