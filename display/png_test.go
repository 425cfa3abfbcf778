package display

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

func TestEncodePNG(t *testing.T) {
	for _, size := range []image.Point{Mono, Colour, {240, 240}, {130, 13}} {
		want := Page(measured(), size)
		b, err := EncodePNG(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if n, first := differs(got, want); n != 0 {
			t.Errorf("%v: %d pixels differ, the first at %v", size, n, first)
		}
		if p, ok := got.(*image.Paletted); !ok || size == Mono && len(p.Palette) != 2 {
			t.Errorf("%v is kept as %T, want one bit a pixel where two colours do", size, got)
		}
	}
	if _, err := EncodePNG(Page(measured(), image.Point{})); err == nil {
		t.Error("an empty picture became a PNG")
	}
}

func TestFileIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "screen.png")
	f := NewFile(path)
	first := Page(box(), Mono)
	if err := f.Draw(first); err != nil {
		t.Fatal(err)
	}
	// Whoever has the file open reads the picture that was there, to its end.
	open, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	second := Page(measured(), Colour)
	if err := f.Draw(second); err != nil {
		t.Fatal(err)
	}
	if got, err := png.Decode(open); err != nil {
		t.Errorf("the old picture is damaged: %v", err)
	} else if n, _ := differs(got, first); n != 0 {
		t.Error("the old picture has changed below its reader")
	}
	if got, err := readPNG(path); err != nil {
		t.Error(err)
	} else if n, _ := differs(got, second); n != 0 {
		t.Error("the new picture is not there")
	}
	if err := f.SetPower(false); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files, want the picture alone", len(left))
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, want 0644", info.Mode())
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "screen.png"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing", "screen.png"), filepath.Join(dir, "screen.png")} {
		if err := NewFile(path).Draw(image.NewPaletted(image.Rect(0, 0, 1, 1), color.Palette{color.Black})); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Error("a temporary file stays behind")
	}
}
