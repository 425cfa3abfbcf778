package board

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

//go:embed profiles/*.toml
var builtin embed.FS

// library holds all profiles by name, those of the user over the built-in ones.
type library map[string]*definition

// load reads the built-in profiles and those of the tree. A file that is wrong is left out and said.
func load(t tree) (library, []error) {
	lib, errs := library{}, []error(nil)
	entries, _ := fs.ReadDir(builtin, "profiles") // embedded: cannot fail
	for _, e := range entries {
		data, _ := builtin.ReadFile("profiles/" + e.Name())
		name := strings.TrimSuffix(e.Name(), ".toml")
		d, err := parse("built-in "+e.Name(), name, data)
		if err != nil {
			errs = append(errs, err) // a test holds that there is none
			continue
		}
		lib[name] = d
	}
	names, err := t.userProfiles()
	if err != nil {
		errs = append(errs, err)
	}
	for _, file := range names {
		shown := "/" + boardsDir + "/" + file
		data, err := t.read(boardsDir+"/"+file, maxProfileBytes)
		if err != nil {
			errs = append(errs, fmt.Errorf("board profile: %w", err))
			continue
		}
		name := strings.TrimSuffix(file, ".toml")
		d, err := parse(shown, name, data)
		if err != nil {
			if lib[name] != nil {
				err = fmt.Errorf("%w (the built-in profile %s serves until then)", err, name)
			}
			errs = append(errs, err)
			continue
		}
		if old := lib[name]; old != nil && old.hat != d.hat {
			errs = append(errs, fmt.Errorf("%s: the built-in profile of that name is a board where this is a HAT, or the "+
				"other way round: rename the file", shown))
			continue
		}
		d.user = true
		lib[name] = d
	}
	return lib, errs
}

// userProfiles lists the files of /etc/linerate/boards in order of their names; an editor's temporary files have
// other endings.
func (t tree) userProfiles() ([]string, error) {
	dir, err := t.resolve(boardsDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("board profiles: %w", err)
	}
	entries, err := os.ReadDir(filepath.Join(string(t), dir))
	if err != nil {
		return nil, fmt.Errorf("board profiles: %w", err)
	}
	var names []string
	for _, e := range entries {
		if path.Ext(e.Name()) == ".toml" && !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) > maxProfiles {
		return names[:maxProfiles], fmt.Errorf("board profiles: /%s holds %d files, only the first %d are read",
			boardsDir, len(names), maxProfiles)
	}
	return names, nil
}

// origin says where a profile of the user's came from; nothing for a built-in one.
func (d *definition) origin() []string {
	if !d.user {
		return nil
	}
	if _, err := fs.Stat(builtin, "profiles/"+d.name+".toml"); err == nil {
		return []string{d.source + " shadows the built-in profile " + d.name}
	}
	return []string{"profile " + d.name + " comes from " + d.source}
}

// best is the definition of the highest rank above 0: the user's before built-in ones, then by rank, then by name.
func (lib library) best(rank func(*definition) int) *definition {
	var found *definition
	top := 0
	for _, name := range lib.names(false) {
		d := lib[name]
		r := rank(d)
		if r == 0 {
			continue
		}
		if found == nil || d.user && !found.user || d.user == found.user && r > top {
			found, top = d, r
		}
	}
	return found
}

// names lists the boards or the HATs, sorted.
func (lib library) names(hats bool) []string {
	var out []string
	for name, d := range lib {
		if d.hat == hats {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
