package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"image"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"linerate/appliance/board"
)

func TestTyped(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[A\x1b[B\x1bOC": "up down right", "\r\x7f1": "ret backspace f1", "\x1b": "backspace", "xyz": "", "q\x03": "quit quit",
	} {
		if got := strings.Join(Typed([]byte(in)), " "); got != want {
			t.Errorf("%q is %q, not %q", in, got, want)
		}
	}
}

func TestDependency(t *testing.T) {
	const depends = "linux-image-6.1.0-57-arm64 (= 6.1.192-3), other"
	if got, err := dependency(depends, "linux-image-"); err != nil || got != "linux-image-6.1.0-57-arm64" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := dependency(depends, "nothing-"); err == nil {
		t.Errorf("no error but %q", got)
	}
}

func TestModuleFiles(t *testing.T) {
	tree := t.TempDir()
	dir := filepath.Join(tree, "lib/modules/6.1.0")
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("modules.dep", "k/a.ko: k/b-c.ko k/d.ko\nk/b-c.ko: k/d.ko\nk/d.ko:\n")
	write("modules.builtin", "kernel/drivers/spi/in-side.ko\n")
	k := &Kernel{Release: "6.1.0", Tree: tree}
	if got, err := k.moduleFiles("b_c", "a", "in_side"); err != nil || !slices.Equal(got, []string{"k/d.ko", "k/b-c.ko", "k/a.ko"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := k.moduleFiles("absent"); err == nil || !strings.Contains(err.Error(), "no module absent") {
		t.Errorf("error %v", err)
	}
}

func TestOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	built := 0
	build := func(tmp string) error {
		built++
		return os.WriteFile(filepath.Join(tmp, "file"), nil, 0o644)
	}
	broken := errors.New("broken")
	if err := once(dir, func(tmp string) error { return errors.Join(build(tmp), broken) }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "b*")); len(left) > 0 {
		t.Errorf("a failed build leaves %q", left)
	}
	for range 2 {
		if err := once(dir, build); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil || built != 2 {
		t.Errorf("built %d times, %v", built, err)
	}
}

// TestRamdisk reads an archive with the program that the format comes from.
func TestRamdisk(t *testing.T) {
	var packed bytes.Buffer
	r := newRamdisk(&packed)
	r.folder("bin")
	r.entry("bin/odd", typeRun, []byte("12345"))
	r.entry("even", typeFile, []byte("1234"))
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if r := newRamdisk(io.Discard); true {
		r.copy("x", "/there/is/none", typeFile)
		if err := r.close(); err == nil {
			t.Error("a file that is not there is no error")
		}
	}
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("cpio is not here")
	}
	gz, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("cpio", "-i", "--quiet", "-D", dir)
	cmd.Stdin = gz
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]string{"bin/odd": "12345", "even": "1234"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v)", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "bin/odd")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("bin/odd: %v %v", info.Mode(), err)
	}
}

// start of an SSD1306, and a message that lights the first byte.
var (
	panelStart = []byte{0x00, 0x8d, 0x14, 0xaf, 0x20, 0x00, 0x21, 0, 127, 0x22, 0, 7}
	panelBlank = append([]byte{0x40}, make([]byte, 128*8)...)
)

func TestPanel(t *testing.T) {
	p := newPanel()
	send := func(messages ...[]byte) {
		for _, m := range messages {
			if _, err := p.Write(m); err != nil {
				t.Fatal(err)
			}
			p.took()
		}
	}
	send(panelStart, panelBlank)
	dark := func(q *image.Gray) bool { return slices.Max(q.Pix) == 0 }
	changed := p.Changed()
	lit := p.Watch(func(q *image.Gray) bool { return !dark(q) })
	send([]byte{0x40, 0xff}, []byte{0x00, 0x21, 0, 127, 0x22, 0, 7}, []byte{0x40, 0}) // for one message only
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if at, err := lit(ctx); err != nil || time.Since(at) > time.Minute {
		t.Errorf("a picture that stood for one message: %v, %v", at, err)
	}
	select {
	case <-changed:
	default:
		t.Error("the change was not told")
	}
	if _, err := p.Watch(dark)(ctx); err != nil {
		t.Errorf("the picture that is there: %v", err)
	}
	short, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if _, err := p.Watch(func(*image.Gray) bool { return false })(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a picture that never comes: %v", err)
	}
	if len(p.watches) != 0 {
		t.Errorf("%d watches are left", len(p.watches))
	}
	if len(p.History()) == 0 {
		t.Error("no history")
	}
}

// TestBoard: the profile of the virtual box is one that the appliance takes, with everything on it.
func TestBoard(t *testing.T) {
	root := t.TempDir()
	for name, data := range map[string]string{
		"etc/linerate/boards/nanopi-r5s-virtual.toml": string(embedded("board.toml")),
		"proc/device-tree/compatible":                 "friendlyarm,nanopi-r5s\x00rockchip,rk3568\x00",
		"proc/device-tree/model":                      "FriendlyElec NanoPi R5S\x00",
	} {
		if err := put(root, name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, errs := board.Detect(root, board.Auto)
	if len(errs) > 0 || p.Name != "nanopi-r5s-virtual" || p.Model != "FriendlyElec NanoPi R5S" || p.Panel == nil || len(p.Keys) != 7 {
		t.Errorf("%+v, %v", p, errs)
	}
	for i, want := range []string{"lan1", "lan2", "wan"} {
		if p.Ports[i].Role != want || p.Ports[i].Test != (want != "wan") {
			t.Errorf("port %d is %+v", i, p.Ports[i])
		}
	}
	for _, port := range Ports {
		if !strings.Contains(string(embedded("board.toml")), `role = "`+port.Role+`"`) {
			t.Errorf("the profile lacks %s", port.Role)
		}
	}
}

// TestMachineThatCannotStart leaves nothing behind.
func TestMachineThatCannotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, path := range []string{os.Getenv("PATH"), t.TempDir()} { // with the emulator, if it is here, and without
		t.Setenv("PATH", path)
		m, err := start(spec{kernel: &Kernel{Image: "/there/is/none"}, ramdisk: "/there/is/none", lifetime: time.Minute}, nil)
		if err == nil {
			m.Kill()
			t.Fatal("no error")
		}
		if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
			t.Errorf("%v leaves %v", err, left)
		}
	}
}
