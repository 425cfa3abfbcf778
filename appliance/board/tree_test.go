package board

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestTreeLinks follows links as they would go in the tree's own box, never out of it.
func TestTreeLinks(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	write(t, root, "a/real", "inside")
	for link, target := range map[string]string{
		"absolute": "/a/real", "relative": "a/real", "up": "../../../../a/real", "chain": "absolute", "out": outside,
		"loop": "loop", "dir": "/a", "dots": "a/../a/./real", "a/deep": "/a/real", "a/sibling": "real",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a/real", "absolute", "relative", "up", "chain", "dir/real", "../a/real", "dots",
		"a/deep", "a/sibling", "dir/deep"} {
		data, err := tree(root).read(name, 100)
		if string(data) != "inside" || err != nil {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{"out", "loop", "nothing", "a", "a/real/below"} {
		if data, err := tree(root).read(name, 100); err == nil {
			t.Errorf("%s: read %q", name, data)
		}
	}
	if _, err := tree(root).read("a/real", 5); err == nil || !strings.Contains(err.Error(), "larger than 5 bytes") {
		t.Errorf("a file over its bound: %v", err)
	}
}

// TestDetectHostileTree: whatever lies there, Detect returns at once with a profile.
func TestDetectHostileTree(t *testing.T) {
	root := t.TempDir()
	write(t, root, "proc/device-tree/compatible", strings.Repeat("x", maxFactBytes+1))
	write(t, root, firmwareDT+"/compatible", "friendlyarm,nanopi-r5s\x00")
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, modelFile), 0o644); err != nil {
		t.Fatal(err)
	}
	p, errs := Detect(root, Auto)
	if p.Name != "nanopi-r5s" || len(errs) != 2 {
		t.Errorf("%s, errors %v", p.Name, errs)
	}
	p, errs = Detect(filepath.Join(root, "missing"), Auto)
	if p.Name != Generic || len(errs) != 0 {
		t.Errorf("no tree: %s, errors %v", p.Name, errs)
	}
}

func TestParseCompatible(t *testing.T) {
	for data, want := range map[string][]string{
		"a,b\x00c,d\x00":          {"a,b", "c,d"},
		"a,b":                     {"a,b"},
		"\x00\x00a,b\x00\x00":     {"a,b"},
		"a\nb\x00c,d\x00":         {"c,d"},
		"\xff\xfe\x00":            nil,
		"":                        nil,
		" friendlyarm,x \x00\x00": {"friendlyarm,x"},
	} {
		if got := parseCompatible([]byte(data)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	}
	if got := parseCompatible([]byte(strings.Repeat("a\x00", 2000))); len(got) != maxCompatible {
		t.Errorf("%d strings", len(got))
	}
}

func TestDevicePaths(t *testing.T) {
	paths, err := DevicePaths("testdata/trees/nanopi-r5s-vendor")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"eth0": "platform/fe2a0000.ethernet",
		"eth1": "platform/3c0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0",
		"eth2": "platform/3c0400000.pcie/pci0001:10/0001:10:00.0/0001:11:00.0",
		"eth3": "platform/fd000000.usb/xhci-hcd.2.auto/usb6/6-1/6-1:2.0",
	} // not lo, not br-lan
	if fmt.Sprint(paths) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", paths, want)
	}
	if _, err := DevicePaths(t.TempDir()); err == nil {
		t.Error("no error without /sys/class/net")
	}
}

// TestCodes compares the names with the kernel's own header where the machine has it.
func TestCodes(t *testing.T) {
	f, err := os.Open("/usr/include/linux/input-event-codes.h")
	if err != nil {
		t.Skip("the kernel's headers are not installed: ", err)
	}
	defer f.Close()
	header := map[string]Code{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var name string
		var n int
		if _, err := fmt.Sscanf(s.Text(), "#define %s %v", &name, &n); err == nil {
			header[name] = Code(n)
		}
	}
	for name, code := range codeNames {
		if code != AnyCode && header[name] != code {
			t.Errorf("%s = %#x, the header says %#x", name, uint16(code), uint16(header[name]))
		}
	}
	if header["KEY_MAX"] != maxCode {
		t.Errorf("KEY_MAX = %#x", uint16(header["KEY_MAX"]))
	}
}

func TestCodeText(t *testing.T) {
	for text, want := range map[string]Code{"BTN_1": 0x101, "0x101": 0x101, "257": 0x101, "any": AnyCode, "0x2ff": 0x2ff} {
		var c Code
		if err := c.UnmarshalText([]byte(text)); err != nil || c != want {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "BTN_X", "0x300", "65537"} {
		var c Code
		if err := c.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a code", text)
		}
	}
	if s := Code(0x101).String(); s != "BTN_1" {
		t.Error(s)
	}
	if s := Code(0x1ff).String(); s != "0x1ff" {
		t.Error(s)
	}
}
