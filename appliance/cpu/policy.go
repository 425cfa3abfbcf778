package cpu

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Files of a policy (Documentation/admin-guide/pm/cpufreq.rst).
const (
	fileGovernor  = "scaling_governor"
	fileGovernors = "scaling_available_governors"
	fileMin       = "scaling_min_freq"
	fileMax       = "scaling_max_freq"
	fileCurrent   = "scaling_cur_freq"
	fileLeast     = "cpuinfo_min_freq"
	fileMost      = "cpuinfo_max_freq"
)

// Policy is one group of cores that share a clock. Frequencies are in kHz; 0 is unknown.
type Policy struct {
	Name      string // policy0
	Cores     string // of the group, as the kernel lists them: "0 1 2 3"
	Governor  string
	Governors []string // there are; nil: unknown
	Min, Max  int      // limits in force
	Current   int
	Least     int // that the hardware can do
	Most      int
}

func policyDir(root string) string { return filepath.Join(root, "/sys/devices/system/cpu/cpufreq") }

// Policies reads every policy there is, in the order of their first core; none where the kernel has no cpufreq.
func Policies(root string) []Policy {
	var list []Policy
	for _, dir := range entries(policyDir(root), "policy") {
		p := Policy{Name: filepath.Base(dir)}
		governor, err := attribute(filepath.Join(dir, fileGovernor))
		if err != nil {
			continue // its cores are offline
		}
		p.Governor = governor
		p.Cores, _ = attribute(filepath.Join(dir, "affected_cpus"))
		if s, err := attribute(filepath.Join(dir, fileGovernors)); err == nil {
			p.Governors = strings.Fields(s)
		}
		for file, into := range map[string]*int{
			fileMin: &p.Min, fileMax: &p.Max, fileCurrent: &p.Current, fileLeast: &p.Least, fileMost: &p.Most,
		} {
			if n, ok := number(filepath.Join(dir, file)); ok && n > 0 {
				*into = n
			}
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Policy) int { return a.number() - b.number() })
	return list
}

func (p Policy) number() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(p.Name, "policy"))
	return n
}

// value returns what a file of the policy says; "" unknown.
func (p Policy) value(file string) string {
	switch file {
	case fileGovernor:
		return p.Governor
	case fileMin:
		return khz(p.Min)
	case fileMax:
		return khz(p.Max)
	}
	return ""
}

func khz(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}
