package display

import (
	"image"
	"strings"
	"testing"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
)

// read finds what is written on a picture in the small face: every run of at least three characters, on any row and
// from any column, dark on light or light on dark, a line each. So a test sees what a person can read.
func read(picture image.Image) string {
	b := picture.Bounds()
	columns := make([]uint8, b.Dx()) // of each column the eight rows up to y, the lowest in bit 7
	var out strings.Builder
	for y := range b.Dy() {
		for x := range columns {
			columns[x] >>= 1
			if r, g, bl, _ := picture.At(b.Min.X+x, b.Min.Y+y).RGBA(); max(r, g, bl) >= 0x8000 {
				columns[x] |= 0x80
			}
		}
		if y < 7 {
			continue
		}
		for phase := range small.Advance {
			var run []rune
			flush := func() {
				if text := strings.TrimSpace(string(run)); len(text) >= 3 {
					out.WriteString(text + "\n")
				}
				run = run[:0]
			}
			for x := phase; x+small.Width <= b.Dx(); x += small.Advance {
				p := pattern(columns[x:])
				if r, ok := glyphs[p]; ok {
					run = append(run, r)
				} else if r, ok := glyphs[p^0xff_ffff_ffff]; ok {
					run = append(run, r)
				} else {
					flush()
				}
			}
			flush()
		}
	}
	return out.String()
}

// pattern packs the columns of a cell into a number.
func pattern(columns []uint8) (p uint64) {
	for _, c := range columns[:small.Width] {
		p = p<<8 | uint64(c)
	}
	return p
}

// glyphs maps the pixels of each glyph of the small face to its character.
var glyphs = func() map[uint64]rune {
	m := map[uint64]rune{}
	mask := small.Mask.(*image.Alpha)
	for _, rng := range small.Ranges {
		for r := rng.Low; r < rng.High; r++ {
			top := (int(r-rng.Low) + rng.Offset) * 8
			columns := make([]uint8, small.Width)
			for x := range columns {
				for y := range 8 {
					if mask.AlphaAt(x, top+y).A != 0 {
						columns[x] |= 1 << y
					}
				}
			}
			m[pattern(columns)] = r
		}
	}
	return m
}()

func TestSmallFaceHasAllOfASCII(t *testing.T) {
	for r := ' '; r <= '~'; r++ {
		if _, ok := small.GlyphAdvance(r); !ok {
			t.Errorf("%q is missing", r)
		}
	}
	for _, r := range "…→←↑↓✓✗⚠●○▸▴▾°µ×–·�" {
		if _, ok := small.GlyphAdvance(r); !ok {
			t.Errorf("%q is missing", r)
		}
	}
	for r := rune('0'); r <= '9'; r++ {
		if _, ok := big.GlyphAdvance(r); !ok {
			t.Errorf("%q is missing among the big digits", r)
		}
	}
}

// Two characters that look the same would make an address unreadable.
func TestGlyphsDiffer(t *testing.T) {
	n := 0
	for _, rng := range small.Ranges {
		n += int(rng.High - rng.Low)
	}
	if len(glyphs) != n {
		t.Errorf("%d characters share %d pictures", n, len(glyphs))
	}
}

func TestParseFaceRefusesDamage(t *testing.T) {
	good := "A  B\n#. .#\n.# #.\n"
	if _, err := parseFace(good, 2, 2, 2); err != nil {
		t.Fatal(err)
	}
	for name, art := range map[string]string{
		"a row missing":        "A  B\n#. .#\n",
		"a row too short":      "A  B\n#. .#\n.# #\n",
		"another sign":         "A  B\n#. .#\n.# #x\n",
		"not above its glyph":  "A B\n#. .#\n.# #.\n",
		"the same twice":       "A  A\n#. .#\n.# #.\n",
		"more than its height": "A  B\n#. .#\n.# #.\n.. ..\n",
	} {
		if _, err := parseFace(art, 2, 2, 2); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The faces are ordinary ones: what the standard drawer writes with them can be read.
func TestFaceWorksWithFontDrawer(t *testing.T) {
	for _, f := range []*basicfont.Face{small, big} {
		img := image.NewGray(image.Rect(0, 0, 140, 20))
		d := font.Drawer{Dst: img, Src: image.White, Face: f, Dot: fixed.P(1, f.Ascent)}
		d.DrawString("0123456789")
		if f == small && !strings.Contains(read(img), "0123456789") {
			t.Errorf("read %q", read(img))
		}
		if got, want := d.Dot.X.Round(), 1+10*f.Advance; got != want {
			t.Errorf("ten digits end at %d, want %d", got, want)
		}
	}
}

func TestReadNeedsEveryPixel(t *testing.T) {
	c := newCanvas(Mono, true)
	c.text(small, 3, 5, "192.168.100.101", white)
	if got := read(c.picture()); !strings.Contains(got, "192.168.100.101") {
		t.Fatalf("read %q", got)
	}
	c.fill(image.Rect(3+14*6, 0, 128, 64), black) // the last digit is cut
	if got := read(c.picture()); strings.Contains(got, "192.168.100.101") || !strings.Contains(got, "192.168.100.10") {
		t.Errorf("read %q", got)
	}
}
