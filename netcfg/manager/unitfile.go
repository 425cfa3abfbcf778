package manager

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// setting is one line of a file in systemd's syntax (systemd.syntax(7)), in its section.
type setting struct{ section, key, value string }

// maxSettings of one file are read; nobody writes more.
const maxSettings = 4096

// parseUnit reads the settings in their order. What is no setting is left out, as systemd does.
func parseUnit(text string) []setting {
	var out []setting
	section, joined := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue // a comment within a joined line is left out too
		}
		if part, more := strings.CutSuffix(line, "\\"); more {
			joined += part + " "
			continue
		}
		line, joined = strings.TrimSpace(joined+line), ""
		if len(line) > 2 && line[0] == '[' && line[len(line)-1] == ']' {
			section = line[1 : len(line)-1]
			if len(out) < maxSettings { // a section may come several times ([Route])
				out = append(out, setting{section: section})
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if ok && section != "" && len(out) < maxSettings {
			out = append(out, setting{section, strings.TrimSpace(key), strings.TrimSpace(value)})
		}
	}
	return out
}

// words lists the values of a key that takes a list; an empty value starts the list anew.
func words(settings []setting, section, key string) []string {
	var out []string
	for _, s := range settings {
		if s.section != section || s.key != key {
			continue
		}
		if s.value == "" {
			out = nil
		}
		out = append(out, strings.Fields(s.value)...)
	}
	return out
}

// value is the last one of a key; "" without one.
func value(settings []setting, section, key string) string {
	out := ""
	for _, s := range settings {
		if s.section == section && s.key == key {
			out = s.value
		}
	}
	return out
}

// unitFiles reads the files with this suffix from folders, the strongest first, in the order of their names: of two with
// one name the stronger folder's counts, and one that leads to /dev/null or is empty hides it. What lies in NAME.d/*.conf
// is added to it.
func unitFiles(dirs []string, suffix string) []unitFile {
	paths, extras := map[string]string{}, map[string]map[string]string{}
	for _, dir := range slices.Backward(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries[:min(len(entries), maxUnitFiles)] {
			name := e.Name()
			if base, ok := strings.CutSuffix(name, suffix+".d"); ok {
				conf, _ := filepath.Glob(filepath.Join(dir, name, "*.conf"))
				for _, c := range conf[:min(len(conf), maxUnitFiles)] {
					if extras[base+suffix] == nil {
						extras[base+suffix] = map[string]string{}
					}
					extras[base+suffix][filepath.Base(c)] = c
				}
			} else if strings.HasSuffix(name, suffix) {
				paths[name] = filepath.Join(dir, name)
			}
		}
	}
	var out []unitFile
	for name, path := range paths {
		u := unitFile{name: name}
		text := readTheirs(path)
		if strings.TrimSpace(text) == "" {
			continue
		}
		u.settings = parseUnit(text)
		var conf []string
		for c := range extras[name] {
			conf = append(conf, c)
		}
		slices.Sort(conf)
		for _, c := range conf {
			u.settings = append(u.settings, parseUnit(readTheirs(extras[name][c]))...)
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b unitFile) int { return strings.Compare(a.name, b.name) })
	return out
}

type unitFile struct {
	name     string
	settings []setting
}

const maxUnitFiles = 1000

// readTheirs reads what may be a link, as the distribution and netplan have them; "" where it cannot be.
func readTheirs(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	b, _ := readSmall(real)
	return b
}
