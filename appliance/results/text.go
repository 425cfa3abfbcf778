package results

import (
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"linerate/appliance/throughput"
)

// WriteCSV writes one line for each record under a line of names: the scalars of the JSON in its order, nested ones
// dotted, without lists. Unknown is empty.
func WriteCSV(w io.Writer, records []Record) error {
	out := csv.NewWriter(w)
	var names []string
	columns(reflect.ValueOf(Record{}), "", func(name string, _ reflect.Value) { names = append(names, name) })
	if err := out.Write(names); err != nil {
		return err
	}
	for _, r := range records {
		cells := make([]string, 0, len(names))
		columns(reflect.ValueOf(r), "", func(_ string, v reflect.Value) { cells = append(cells, cell(v)) })
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// columns walks the scalars of a struct by their JSON names.
func columns(v reflect.Value, prefix string, visit func(name string, v reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		_, isTime := v.Field(i).Interface().(time.Time)
		switch {
		case name == "-" || f.Type.Kind() == reflect.Slice:
		case f.Anonymous:
			columns(v.Field(i), prefix, visit)
		case f.Type.Kind() == reflect.Struct && !isTime:
			columns(v.Field(i), prefix+name+".", visit)
		default:
			visit(prefix+name, v.Field(i))
		}
	}
}

func cell(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Time:
		return x.Format(time.RFC3339Nano)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

// WriteTable writes the records for a person, one line each under a line of headings.
func WriteTable(w io.Writer, records []Record, clock Clock) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "ID\tWHEN\tPEER\tDIR\tRATE\tOF LINK\tOF POSSIBLE\tFINDINGS\tRESULT")
	for _, r := range records {
		peer := string(r.Peer)
		if r.Target != "" {
			peer = string(r.Target)
		}
		cells := []string{
			r.ID, When(r.Stamp, clock), peer, direction(r.Direction), rate(r), percent(r.LineRatePercent),
			percent(r.PossiblePercent), strings.Join(r.Findings, ", "), verdict(r),
		}
		for i, c := range cells {
			if cells[i] = printable(c); cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
}

// When says how long ago a result was stored, or at what time, as well as that can be known.
func When(s Stamp, clock Clock) string {
	age, ok := clock.Age(s)
	switch {
	case ok && age < time.Minute:
		return fmt.Sprintf("%d s ago", int(age.Seconds()))
	case ok && age < time.Hour:
		return fmt.Sprintf("%d min ago", int(age.Minutes()))
	case ok && age < 24*time.Hour:
		return fmt.Sprintf("%d h ago", int(age.Hours()))
	case s.Clock == Synced:
		return s.Time.Local().Format("2006-01-02 15:04")
	case ok:
		return fmt.Sprintf("%d days ago", int(age.Hours()/24))
	}
	return "clock not set"
}

func direction(d throughput.Direction) string {
	if d == throughput.Both {
		return "RX+TX"
	}
	return strings.ToUpper(string(d))
}

func rate(r Record) string {
	if r.Error != "" && r.Bytes == 0 {
		return "" // nothing was measured
	}
	if r.Direction == throughput.Both && r.RXBPS != nil && r.TXBPS != nil {
		return bits(*r.RXBPS) + " + " + bits(*r.TXBPS)
	}
	return bits(r.BPS)
}

// bits writes a rate with three digits.
func bits(bps float64) string {
	for _, unit := range []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s"} {
		if bps < 999.5 || unit == "Gbit/s" {
			digits := 2
			if bps >= 99.95 {
				digits = 0
			} else if bps >= 9.995 {
				digits = 1
			}
			return strconv.FormatFloat(bps, 'f', digits, 64) + " " + unit
		}
		bps /= 1000
	}
	return ""
}

func percent(p *float64) string {
	if p == nil {
		return ""
	}
	return strconv.FormatFloat(*p, 'f', 1, 64) + " %"
}

// verdict says first what makes the figures worthless.
func verdict(r Record) string {
	switch {
	case r.Error != "":
		return "error: " + string(r.Error)
	case !r.Valid:
		return "not valid"
	case r.Pass == nil:
		return ""
	case *r.Pass:
		return "PASS"
	}
	return "FAIL"
}

// printable keeps what strangers send from steering a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
