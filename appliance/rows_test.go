package appliance

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "linerate/"

// rows is the table of testdata/rows.txt.
type rows struct {
	row  map[string]int
	exec []string
}

func readRows(t *testing.T) rows {
	f, err := os.Open("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table := rows{row: map[string]int{}}
	row, mayExec := -1, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch n, isRow := strings.CutPrefix(line, "row "); {
		case line == "" || line[0] == '#':
		case isRow:
			if row, err = strconv.Atoi(n); err != nil {
				t.Fatal(err)
			}
		case line == "exec":
			mayExec = true
		case mayExec:
			table.exec = append(table.exec, line)
		default:
			table.row[line] = row
		}
	}
	return table
}

// part finds the listed package that pkg is or is a room of.
func (r rows) part(pkg string) (string, bool) {
	for p := pkg; p != ""; p = p[:max(0, strings.LastIndexByte(p, '/'))] {
		// "appliance" itself has no rooms: every folder below it is a part of its own.
		if _, ok := r.row[p]; ok && (p == pkg || p != "appliance") {
			return p, true
		}
	}
	return "", false
}

// complain says in a sentence what is wrong with from importing to; "" where nothing is.
func (r rows) complain(from, to string) string {
	if to == "os/exec" {
		for _, e := range r.exec {
			if from == e || strings.HasPrefix(from, e+"/") {
				return ""
			}
		}
		return from + " imports os/exec: only " + strings.Join(r.exec, ", ") + " run other programs"
	}
	to, ours := strings.CutPrefix(to, module)
	if !ours {
		return ""
	}
	a, okA := r.part(from)
	b, okB := r.part(to)
	switch {
	case !okA:
		return from + " is in no row: give it one in testdata/rows.txt"
	case !okB:
		return from + " imports " + to + ", which is in no row: give it one in testdata/rows.txt"
	case a == b:
		return "" // rooms of one part
	case r.row[a] == 4 && r.row[b] < 4:
		return ""
	case r.row[b] >= r.row[a]:
		return from + " (row " + strconv.Itoa(r.row[a]) + ") imports " + to + " (row " + strconv.Itoa(r.row[b]) +
			"): imports go down only"
	case to != b && r.row[b] > 1:
		return from + " imports " + to + ", a room of " + b + ": nobody imports another part's rooms"
	}
	return ""
}

func TestRows(t *testing.T) {
	table := readRows(t)
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, to := range p.Imports {
			if s := table.complain(from, to); s != "" {
				t.Error(s)
			}
		}
	}
	if seen < 5 {
		t.Fatalf("go list named %d packages: the test looked at nothing", seen)
	}
}

// TestRowsComplain shows that the rule bites.
func TestRowsComplain(t *testing.T) {
	table := readRows(t)
	for _, c := range []struct {
		from, to string
		bad      bool
	}{
		{"netcfg", "linerate/appliance", false},
		{"netcfg", "linerate/netcfg/manager", false},
		{"netcfg/manager", "linerate/netcfg/ethnl", false},
		{"cmd/linerate", "linerate/netcfg/netcfgtest", false},
		{"appliance/runner", "linerate/appliance/iperf3", false},
		{"netcfg", "linerate/display", true},
		{"appliance", "linerate/netcfg", true},
		{"appliance/iperf3", "linerate/appliance/results", true},
		{"display", "linerate/netcfg/manager", true},
		{"display", "linerate/cmd/linerate", true},
		{"display", "linerate/somewhere", true},
		{"appliance/web", "os/exec", true},
		{"netcfg/manager", "os/exec", false},
	} {
		if got := table.complain(c.from, c.to); (got != "") != c.bad {
			t.Errorf("%s -> %s: complaint %q, want one: %v", c.from, c.to, got, c.bad)
		}
	}
}

// TestVocabularyIsPortable holds what doc.go promises: no Linux and no hardware in this package.
func TestVocabularyIsPortable(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{join .Imports \"\\n\"}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	allowed := []string{"linerate/appliance/config", "linerate/appliance/results", "linerate/appliance/throughput", "linerate/appliance/board"}
	for _, pkg := range strings.Fields(string(out)) {
		if strings.Contains(pkg, ".") || strings.HasPrefix(pkg, module) && !slices.Contains(allowed, pkg) {
			t.Errorf("appliance imports %s: only the standard library and rows 0 and 1", pkg)
		}
	}
}
