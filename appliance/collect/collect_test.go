package collect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// box lays out a small tree with one PCI port.
func box(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	device := "sys/devices/platform/3c0000000.pcie/pci0000:00/0000:01:00.0"
	for name, text := range map[string]string{
		"etc/linerate/linerate.toml":              "[web]\npin = \"123456\"\nlisten = \":80\"\n",
		"etc/shadow":                              "root:secret",
		"proc/cmdline":                            "quiet",
		device + "/vendor":                        "0x10ec\n",
		device + "/resource0":                     "not wanted",
		device + "/net/eth1/mtu":                  "1500\n",
		device + "/net/eth1/statistics/x":         "5\n",
		"sys/firmware/devicetree/base/compatible": "friendlyarm,nanopi-r5s\x00rockchip,rk3568\x00",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"sys/class/net/eth1":        "../../devices/platform/3c0000000.pcie/pci0000:00/0000:01:00.0/net/eth1",
		"proc/device-tree":          "/sys/firmware/devicetree/base",
		device + "/driver":          "../../../../../bus/pci/drivers/r8169",
		device + "/net/eth1/device": "../../../0000:01:00.0",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestThereAndBack(t *testing.T) {
	var archive bytes.Buffer
	if err := Pack(&archive, box(t), map[string][]byte{"linerate/ports.json": []byte("[]")}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Unpack(&archive, dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sys/class/net/eth1/mtu":                  "1500\n",
		"sys/class/net/eth1/statistics/x":         "5\n",
		"sys/class/net/eth1/device/vendor":        "0x10ec\n",
		"linerate/ports.json":                     "[]",
		"proc/cmdline":                            "quiet",
		"sys/firmware/devicetree/base/compatible": "friendlyarm,nanopi-r5s\x00rockchip,rk3568\x00",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "etc/linerate/linerate.toml")); strings.Contains(string(got), "123456") || !strings.Contains(string(got), ":80") {
		t.Errorf("config %q; want it without the PIN", got)
	}
	for _, name := range []string{"etc/shadow", "sys/devices/platform/3c0000000.pcie/pci0000:00/0000:01:00.0/resource0"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, "sys/class/net/eth1/device/driver")); err != nil || filepath.Base(target) != "r8169" {
		t.Errorf("driver %q, %v", target, err)
	}
}

// pack is an archive of the given headers; a file's content is its name.
func pack(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(h.Name))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte(h.Name)) // a size that lies ends in a damaged archive
		}
	}
	_ = w.Close()
	_ = z.Close()
	return &out
}

func TestHostileArchives(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	for name, archive := range map[string]*bytes.Buffer{
		"climbs out":     pack(t, file("../../escape")),
		"absolute":       pack(t, file("/escape")),
		"through a link": pack(t, tar.Header{Name: "out", Linkname: "../..", Typeflag: tar.TypeSymlink}, file("out/escape")),
		"twice":          pack(t, file("a"), file("a")),
		"device":         pack(t, tar.Header{Name: "dev", Typeflag: tar.TypeChar}),
		"huge":           pack(t, tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: MaxFile + 1}),
		"no archive":     bytes.NewBufferString("GET / HTTP/1.0"),
		"cut short":      bytes.NewBuffer(pack(t, file("a")).Bytes()[:40]),
	} {
		outer := t.TempDir()
		dir := filepath.Join(outer, "a", "b")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Unpack(archive, dir); err == nil {
			t.Errorf("%s: taken", name)
		}
		if _, err := os.Lstat(filepath.Join(outer, "escape")); err == nil {
			t.Errorf("%s: wrote outside of its folder", name)
		}
		if _, err := os.Lstat("/escape"); err == nil {
			t.Errorf("%s: wrote to /", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	var archive bytes.Buffer
	if err := Pack(&archive, "testdata/empty", map[string][]byte{"linerate/ports.json": []byte("[]")}); err != nil {
		f.Fatal(err)
	}
	f.Add(archive.Bytes())
	f.Add(pack(f, tar.Header{Name: "a/b", Typeflag: tar.TypeReg}, tar.Header{Name: "l", Linkname: "a", Typeflag: tar.TypeSymlink}).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := filepath.Join(t.TempDir(), "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(bytes.NewReader(data), dir)
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
			t.Fatalf("something was written outside: %v, %v", entries, err)
		}
	})
}
