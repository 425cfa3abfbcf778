package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Where packages come from: a release whose kernel, compiler and emulator fit one another. LINERATE_DEBIAN_MIRROR names
// another mirror.
const (
	suite   = "bookworm"
	mirror  = "http://deb.debian.org"
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// guestArch is Debian's name of the emulated processor's architecture.
const guestArch = "arm64"

// fresh is for how long the archive's lists are taken as they are.
const fresh = 12 * time.Hour

// archive is Debian's archive seen through a package manager of its own: an apt whose lists, cache and (empty) database
// lie below dir, so that nothing of this machine's is read or changed but its proxies.
type archive struct {
	dir  string
	host string // this machine's architecture
}

// openArchive sets the archive up below dir and fetches its lists where they are missing or old. Without a network old
// lists serve.
func openArchive(ctx context.Context, dir string) (*archive, error) {
	host, err := output(ctx, "dpkg", "--print-architecture")
	if err != nil {
		return nil, err
	}
	a := &archive{dir: dir, host: strings.TrimSpace(host)}
	for _, sub := range []string{"etc", "lists/partial", "cache/archives/partial", "empty/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	base := mirror
	if m := os.Getenv("LINERATE_DEBIAN_MIRROR"); m != "" {
		base = strings.TrimSuffix(m, "/")
	}
	arches := guestArch
	if a.host != guestArch {
		arches += "," + a.host
	}
	from := fmt.Sprintf("deb [arch=%s signed-by=%s] ", arches, keyring)
	sources := from + base + "/debian " + suite + " main\n" + from + base + "/debian-security " + suite + "-security main\n"
	conf := fmt.Sprintf("Dir::Etc::sourcelist %q;\nDir::Etc::sourceparts \"-\";\nDir::Etc::preferencesparts \"-\";\n"+
		"Dir::Etc::preferences \"-\";\nDir::State %q;\nDir::State::lists %q;\nDir::State::status %q;\nDir::Cache %q;\n"+
		"Dir::Cache::archives %q;\nAPT::Architecture %q;\n#clear APT::Architectures;\nAPT::Architectures { %q; %q; };\n"+
		"APT::Sandbox::User \"\";\nAPT::Install-Recommends \"0\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n",
		a.path("etc/sources.list"), dir, a.path("lists"), a.path("status"), a.path("cache"), a.path("cache/archives"),
		guestArch, guestArch, a.host)
	for name, text := range map[string]string{"etc/sources.list": sources, "apt.conf": conf, "status": ""} {
		if err := os.WriteFile(a.path(name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	stamp := a.path("updated-" + suite)
	if info, err := os.Stat(stamp); err == nil && time.Since(info.ModTime()) < fresh {
		return a, nil
	}
	if _, err := a.apt(ctx, "apt-get", "update", "-q", "--error-on=any"); err != nil {
		if _, old := os.Stat(stamp); old != nil {
			return nil, fmt.Errorf("fetch the package lists of %s: %w", base, err)
		}
		return a, nil
	}
	return a, os.WriteFile(stamp, nil, 0o644)
}

func (a *archive) path(name string) string { return filepath.Join(a.dir, name) }

// apt runs a program of apt's on the private archive.
func (a *archive) apt(ctx context.Context, program string, args ...string) (string, error) {
	return output(ctx, program, append([]string{"-c", a.path("apt.conf")}, args...)...)
}

// field returns a field of a package's newest version.
func (a *archive) field(ctx context.Context, pkg, name string) (string, error) {
	out, err := a.apt(ctx, "apt-cache", "show", "--no-all-versions", pkg)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("package %s has no field %s", pkg, name)
}

// closure lists the files, name_version_arch.deb, of packages and all they depend on.
func (a *archive) closure(ctx context.Context, pkgs ...string) ([]string, error) {
	// What was downloaded already would not be named, hence another folder to look in.
	other := "Dir::Cache::archives=" + a.path("empty")
	out, err := a.apt(ctx, "apt-get", append([]string{"-qq", "-o", other, "--print-uris", "install"}, pkgs...)...)
	if err != nil {
		return nil, err
	}
	var files []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 3 && strings.HasPrefix(f[0], "'") {
			files = append(files, f[1])
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("apt-get names no file for %s", strings.Join(pkgs, " "))
	}
	slices.Sort(files)
	return files, nil
}

// fetchClosure downloads packages with all they depend on, and returns the files.
func (a *archive) fetchClosure(ctx context.Context, pkgs ...string) ([]string, error) {
	names, err := a.closure(ctx, pkgs...)
	if err != nil {
		return nil, err
	}
	if _, err := a.apt(ctx, "apt-get", append([]string{"-qq", "-y", "--download-only", "install"}, pkgs...)...); err != nil {
		return nil, err
	}
	for i, name := range names {
		names[i] = a.path("cache/archives/" + name)
	}
	return names, nil
}

// fetch downloads packages alone, without what they depend on, into dir, and returns their files in that order.
func (a *archive) fetch(ctx context.Context, dir string, pkgs ...string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-c", a.path("apt.conf"), "download"}, pkgs...)...)
	cmd.Dir = dir
	if _, err := run(cmd); err != nil {
		return nil, err
	}
	var files []string
	for _, pkg := range pkgs {
		name, _, _ := strings.Cut(pkg, ":")
		found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
		if err != nil || len(found) != 1 {
			return nil, fmt.Errorf("apt-get download %s left %d files in %s", pkg, len(found), dir)
		}
		files = append(files, found[0])
	}
	return files, nil
}

// unpack lays the files of a package below dir, through links that lie there already (/lib -> usr/lib).
func unpack(ctx context.Context, deb, dir string) error {
	from := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	to := exec.CommandContext(ctx, "tar", "-x", "--keep-directory-symlink", "-C", dir)
	pipe, err := from.StdoutPipe()
	if err != nil {
		return err
	}
	to.Stdin = pipe
	var said bytes.Buffer
	to.Stderr, from.Stderr = &said, &said
	if err := from.Start(); err != nil {
		return err
	}
	if err := errors.Join(to.Run(), from.Wait()); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", filepath.Base(deb), err, last(said.String()))
	}
	return nil
}

// dependency picks the package of a name's beginning out of a Depends field.
func dependency(depends, prefix string) (string, error) {
	name := regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*`)
	for d := range strings.SplitSeq(depends, ",") {
		if n := name.FindString(strings.TrimSpace(d)); strings.HasPrefix(n, prefix) {
			return n, nil
		}
	}
	return "", fmt.Errorf("none of the dependencies %q begins with %s", depends, prefix)
}

// output runs a program and returns what it prints. The error holds the last line it said.
func output(ctx context.Context, program string, args ...string) (string, error) {
	return run(exec.CommandContext(ctx, program, args...))
}

func run(cmd *exec.Cmd) (string, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%w: install the packages that `make packages` names", err)
	case err != nil:
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, last(said.String()))
	}
	return out.String(), nil
}

// last is the last line that is not empty.
func last(text string) string {
	line := ""
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if t := strings.TrimSpace(s.Text()); t != "" {
			line = t
		}
	}
	return line
}

// once makes dir by calling build with a folder beside it that takes its name when build has returned without an error:
// what lies in the cache is whole. Another process that makes the same waits its turn.
func once(dir string, build func(tmp string) error) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(dir), ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp := dir + ".new"
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		return err
	}
	if err := build(tmp); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return os.Rename(tmp, dir)
}
