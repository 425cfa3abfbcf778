package display

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const ellipsis = "…"

// cut shortens a text to n characters; an ellipsis says that something is missing.
func cut(text string, n int) string {
	r := []rune(text)
	switch {
	case len(r) <= n:
		return text
	case n <= 0:
		return ""
	}
	return strings.TrimRight(string(r[:n-1]), " ") + ellipsis
}

// pieces divides a text that is longer than n characters into parts to be shown in turn: ellipses mark where one goes on.
func pieces(text string, n int) []string {
	if count(text) <= n || n < 4 {
		return []string{cut(text, n)}
	}
	var list []string
	rest, before := []rune(text), ""
	for len(rest)+count(before) > n {
		var head string
		head, rest = split(rest, n-1-count(before))
		list = append(list, before+head+ellipsis)
		before = ellipsis
	}
	return append(list, before+string(rest))
}

// wrap divides a text into lines of at most n characters. It keeps the text's own lines.
func wrap(text string, n int) []string {
	if n < 1 {
		return nil
	}
	var list []string
	for line := range strings.SplitSeq(text, "\n") {
		rest := []rune(strings.TrimSpace(line))
		for len(rest) > n {
			var head string
			head, rest = split(rest, n)
			list = append(list, head)
		}
		list = append(list, string(rest))
	}
	return list
}

// split takes the first line of at most n characters off a longer text. It divides at the best place in the second half
// of what fits: at a space, which is dropped, else behind one of the signs that divide addresses and paths, else where it
// is full. It takes at least one character.
func split(text []rune, n int) (line string, rest []rune) {
	at := max(1, n)
	if text[at] != ' ' {
		sign := 0
		for i := at; i > at/2; i-- {
			if text[i-1] == ' ' {
				sign = i
				break
			}
			if sign == 0 && strings.ContainsRune(":./-_,=@", text[i-1]) {
				sign = i
			}
		}
		if sign > 0 {
			at = sign
		}
	}
	line, rest = strings.TrimRight(string(text[:at]), " "), text[at:]
	for len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	return line, rest
}

// longest is the first of the texts, from long to short, that fits into n characters; the last one where none does.
func longest(n int, texts ...string) string {
	for _, t := range texts {
		if count(t) <= n {
			return t
		}
	}
	return texts[len(texts)-1]
}

// rate writes bits per second with three digits, as they are spoken of: 2.35G, 941M, 98.7M, 64K, 0.
func rate(bps float64) string {
	number, unit := threeDigits(bps)
	return number + unit
}

// threeDigits rounds to three digits; unit is "G", "M", "K" or "".
func threeDigits(bps float64) (number, unit string) {
	if !(bps > 0) {
		return "0", ""
	}
	units := []string{"", "K", "M", "G", "T"}
	u := 0
	for u < len(units)-1 && bps >= 999.5 {
		bps /= 1000
		u++
	}
	digits := 0
	switch {
	case u == 0: // single bits have no fractions
	case bps < 9.995:
		digits = 2
	case bps < 99.95:
		digits = 1
	}
	return strconv.FormatFloat(bps, 'f', digits, 64), units[u]
}

// percent writes 0 to 100 with one digit behind the point while that says something; "" where it is unknown.
func percent(p *float64) string {
	switch {
	case p == nil:
		return ""
	case *p >= 99.95:
		return strconv.FormatFloat(*p, 'f', 0, 64) + "%"
	}
	return strconv.FormatFloat(*p, 'f', 1, 64) + "%"
}

// span writes a duration in its largest unit: "4 s", "12 min", "3 h", "5 d".
func span(d time.Duration) string {
	n, unit := inUnits(d)
	return n + " " + unit
}

// ago is span where every column counts: "4s", "12m", "3h", "5d".
func ago(d time.Duration) string {
	n, unit := inUnits(d)
	return n + unit[:1]
}

func inUnits(d time.Duration) (number, unit string) {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d / time.Second)), "s"
	case d < time.Hour:
		return strconv.Itoa(int(d / time.Minute)), "min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d / time.Hour)), "h"
	}
	return strconv.Itoa(int(d / (24 * time.Hour))), "d"
}

// seconds writes a number of seconds without fractions that nobody reads.
func seconds(s float64) string { return strconv.Itoa(int(max(0, s))) }

// milliseconds writes a round-trip time: "0.52 ms", "12.3 ms", "140 ms".
func milliseconds(ms float64) string {
	switch {
	case ms < 9.995:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 99.95:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// thousands writes a count in at most five characters: 12, 9999, 10.0k, 1.20M.
func thousands(n int64) string {
	if n < 10000 {
		return strconv.FormatInt(n, 10)
	}
	number, unit := threeDigits(float64(n))
	return number + strings.Replace(unit, "K", "k", 1)
}

// many writes a count with its noun: "1 stream", "4 streams".
func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
