package systemd

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "root")
	for range 2 { // over itself too
		done, err := Install(dir)
		if err != nil {
			t.Fatal(err)
		}
		if want := len(Paths()) + len(Links()); len(done) != want {
			t.Errorf("wrote %d files, want %d: %q", len(done), want, done)
		}
	}
	for _, name := range Paths() {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != read(name) {
			t.Errorf("%s: %v", name, err)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	var want []Link
	for _, unit := range []string{
		"linerate-netcfg-early.service", "linerate-netcfg.service", "linerate-users.service", "linerate.service",
	} {
		want = append(want, Link{"etc/systemd/system/multi-user.target.wants/" + unit, "/usr/lib/systemd/system/" + unit})
	}
	if got := Links(); !slices.Equal(got, want) {
		t.Errorf("links %v, want %v", got, want)
	}
	for _, l := range want {
		if target, err := os.Readlink(filepath.Join(dir, l.Path)); err != nil || target != l.Target {
			t.Errorf("%s -> %s, %v", l.Path, target, err)
		}
	}
	var left []string
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".new") {
			left = append(left, path)
		}
		return err
	}); err != nil || len(left) > 0 {
		t.Errorf("left behind %q, %v", left, err)
	}
}

// A card's tree whose folders are links to absolute places must not lead to the files of the machine it is in.
func TestInstallStaysInside(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "usr")); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(dir); err == nil || !strings.Contains(err.Error(), "install /usr/lib") {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("wrote outside: %v, %v", entries, err)
	}

	// A relative link inside is followed: some systems have lib -> usr/lib, and a folder may be elsewhere.
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "system/usr"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("system/usr", filepath.Join(dir, "usr")); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "system/usr/lib/systemd/system/linerate.service")); err != nil {
		t.Error(err)
	}
}

func TestInstallWhereNothingCanBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Install(file)
	if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	if err := Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, name := range Paths() {
		if !strings.Contains(out.String(), "# /"+name+"\n"+read(name)) {
			t.Errorf("%s is missing", name)
		}
	}
}

// settings are the values of a key of a unit, from all its lines.
func settings(t *testing.T, unit, key string) []string {
	t.Helper()
	var values []string
	for line := range strings.Lines(read("usr/lib/systemd/system/" + unit)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && k == key {
			values = append(values, strings.Fields(v)...)
		}
	}
	return values
}

// What the sandbox must leave open, since each of these breaks a feature, and what no unit may wait for.
func TestUnitsLeaveOpen(t *testing.T) {
	for _, unit := range []string{"linerate.service", "linerate-netcfg.service"} {
		closed := []string{"ProcSubset", "ProtectKernelTunables", "RuntimeDirectory", "CPUAffinity", "DynamicUser"}
		for _, key := range closed {
			if got := settings(t, unit, key); len(got) > 0 {
				t.Errorf("%s: %s=%s", unit, key, got)
			}
		}
		if slices.Contains(settings(t, unit, "SystemCallFilter"), "~@resources") {
			t.Errorf("%s: no affinity without @resources", unit)
		}
	}
	if got := settings(t, "linerate.service", "PrivateDevices"); len(got) > 0 {
		t.Errorf("linerate.service: PrivateDevices=%s: no panel, no keys", got)
	}
	if got := settings(t, "linerate.service", "CapabilityBoundingSet"); len(got) > 0 {
		t.Errorf("the server has capabilities: %s", got)
	}
	got := settings(t, "linerate-netcfg.service", "CapabilityBoundingSet")
	if !slices.Equal(got, []string{"CAP_NET_ADMIN", "CAP_NET_RAW"}) {
		t.Errorf("the keeper has capabilities %s", got)
	}
	for _, name := range Paths() {
		for _, word := range []string{"network-online", "network.target", "udev-settle"} {
			for line := range strings.Lines(read(name)) {
				if !strings.HasPrefix(line, "#") && strings.Contains(line, word) {
					t.Errorf("%s waits: %s", name, line)
				}
			}
		}
	}
	if got := settings(t, "linerate.service", "After"); slices.Contains(got, "linerate-netcfg.service") {
		t.Error("the server waits for the keeper")
	}
}

// installed is a tree with the units and a program for them to start.
func installed(t *testing.T, program string) (dir string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not here", program)
	}
	dir = t.TempDir()
	if _, err := Install(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "usr/bin/linerate"), []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSystemdVerifies(t *testing.T) {
	installed(t, "systemd-analyze")
	// verify looks for the program on this system: it is the one thing that may be missing here.
	for _, link := range Links() {
		unit := filepath.Join(t.TempDir(), filepath.Base(link.Path))
		text := strings.ReplaceAll(read(link.Target[1:]), "/usr/bin/linerate", "/bin/true")
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v\n%s", link.Path, err, out)
		}
	}
}

func TestSecurityLevel(t *testing.T) {
	dir := installed(t, "systemd-analyze")
	level := regexp.MustCompile(`exposure level for \S+ ([0-9.]+) `)
	for unit, most := range map[string]float64{"linerate.service": 2.0, "linerate-netcfg.service": 4.0} {
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--root="+dir,
			unit).CombinedOutput()
		m := level.FindSubmatch(out)
		if m == nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
			continue
		}
		if got, err := strconv.ParseFloat(string(m[1]), 64); err != nil || got > most {
			t.Errorf("%s: exposure %s, at most %.1f\n%s", unit, m[1], most, out)
		}
	}
}

func TestSysusersAndTmpfiles(t *testing.T) {
	dir := installed(t, "systemd-sysusers")
	if os.Getuid() != 0 {
		t.Skip("needs root to give folders to their owners")
	}
	// A system that has some of the groups keeps them as they are.
	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\nvideo:x:44:\ni2c:x:997:\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"systemd-sysusers", "--root=" + dir, "linerate.conf"},
		{"systemd-tmpfiles", "--root=" + dir, "--create", "linerate.conf"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	group, err := os.ReadFile(filepath.Join(dir, "etc/group"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nvideo:x:44:\n", "\ni2c:x:997:\n", "\nspi:", "\ngpio:", "\ninput:", "\nlinerate:"} {
		if !strings.Contains(string(group), want) {
			t.Errorf("group %q is missing in\n%s", want, group)
		}
	}
	passwd, err := os.ReadFile(filepath.Join(dir, "etc/passwd"))
	if err != nil || !regexp.MustCompile(`(?m)^linerate:x:\d+:\d+:.*:/var/lib/linerate:.*nologin$`).Match(passwd) {
		t.Errorf("passwd: %v\n%s", err, passwd)
	}
	ids := regexp.MustCompile(`(?m)^linerate:x:(\d+):(\d+):`).FindSubmatch(passwd)
	if ids == nil {
		t.FailNow()
	}
	uid, gid := string(ids[1]), string(ids[2])
	for path, want := range map[string]string{
		"run/linerate": "1775 0 " + gid, "run/linerate/request": "1770 0 " + gid,
		"run/linerate/testing": "644 " + uid + " " + gid,
		"var/lib/linerate":     "755 " + uid + " " + gid, "var/lib/linerate-netcfg": "755 0 0",
	} {
		out, err := exec.Command("stat", "--format=%a %u %g", filepath.Join(dir, path)).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %q, want %q (%v)", path, got, want, err)
		}
	}
}

func TestRulesName(t *testing.T) {
	rules := read("usr/lib/udev/rules.d/70-linerate.rules")
	for _, want := range []string{`SUBSYSTEM=="i2c-dev", GROUP="i2c"`, `SUBSYSTEM=="spidev", GROUP="spi"`, `GROUP="gpio"`,
		`GROUP="input"`, "/brightness", "/trigger"} {
		if !strings.Contains(rules, want) {
			t.Errorf("no rule with %s", want)
		}
	}
}
