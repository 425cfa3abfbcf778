package display

import (
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
)

var update = flag.Bool("update", false, "rewrite the golden pictures")

// Pictures that do not match are left here, beside the repository's other outputs.
const gotDir = "../bin/golden"

// differs counts the pixels in which two pictures differ; -1 where their sizes do.
func differs(a, b image.Image) (n int, first image.Point) {
	if a.Bounds() != b.Bounds() {
		return -1, image.Point{}
	}
	r := a.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			ar, ag, ab, aa := a.At(x, y).RGBA()
			br, bg, bb, ba := b.At(x, y).RGBA()
			if ar != br || ag != bg || ab != bb || aa != ba {
				if n == 0 {
					first = image.Pt(x, y)
				}
				n++
			}
		}
	}
	return n, first
}

func readPNG(path string) (image.Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return png.Decode(f)
}

// golden compares a picture with testdata/name.png, pixel for pixel.
func golden(t *testing.T, name string, got image.Image) {
	t.Helper()
	path := filepath.Join("testdata", name+".png")
	if *update {
		if err := WriteFile(path, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := readPNG(path)
	if err != nil {
		t.Errorf("%v: make golden writes it", err)
	} else if n, first := differs(got, want); n == 0 {
		return
	} else if n < 0 {
		t.Errorf("%s is %v, want %v", name, got.Bounds(), want.Bounds())
	} else {
		t.Errorf("%s differs in %d pixels, the first at %v", name, n, first)
	}
	if err := os.MkdirAll(gotDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(gotDir, name+".png"), got); err != nil {
		t.Fatal(err)
	}
	t.Logf("the picture got is bin/golden/%s.png", name)
}

func sized(name string, size image.Point) string {
	return fmt.Sprintf("%s-%dx%d", name, size.X, size.Y)
}

func TestGolden(t *testing.T) {
	for _, s := range shots {
		for _, size := range []image.Point{Mono, Colour} {
			name := sized(s.name, size)
			t.Run(name, func(t *testing.T) { golden(t, name, Page(s.state(), size)) })
		}
	}
}

// Panels that the pages were not made for get as much as they have room for.
func TestGoldenOtherSizes(t *testing.T) {
	for _, s := range shots {
		switch s.name {
		case "home", "home-fault", "menu", "running-rx", "running-ask", "result", "message-long":
			for _, size := range []image.Point{{128, 32}, {160, 80}, {240, 240}} {
				name := sized(s.name, size)
				t.Run(name, func(t *testing.T) { golden(t, name, Page(s.state(), size)) })
			}
		}
	}
}

// The proof that the comparison is worth something: any one pixel changed, it says so and where.
func TestOnePixelFails(t *testing.T) {
	for _, size := range []image.Point{Mono, Colour} {
		a := Page(measured(), size)
		if n, _ := differs(a, Page(measured(), size)); n != 0 {
			t.Fatalf("the same State gives %d other pixels", n)
		}
		for _, at := range []image.Point{{0, 0}, {size.X - 1, size.Y - 1}, {17, 31}} {
			b := Page(measured(), size).(draw.Image)
			if r, _, _, _ := b.At(at.X, at.Y).RGBA(); r == 0 {
				b.Set(at.X, at.Y, color.White)
			} else {
				b.Set(at.X, at.Y, color.Black)
			}
			if n, first := differs(a, b); n != 1 || first != at {
				t.Errorf("%v changed: %d pixels differ, the first at %v", at, n, first)
			}
		}
	}
	if n, _ := differs(Page(measured(), Mono), Page(measured(), Colour)); n >= 0 {
		t.Error("another size counts as the same")
	}
}

// contactSheet puts the labelled shots beside one another: what the README shows.
func contactSheet() image.Image {
	const columns, gap, caption = 4, 8, 12
	type entry struct {
		label   string
		picture image.Image
	}
	var rows [][]entry
	add := func(size image.Point, wanted func(string) bool) {
		var row []entry
		for _, s := range shots {
			if s.label == "" || !wanted(s.label) {
				continue
			}
			if row = append(row, entry{s.label, Page(s.state(), size)}); len(row) == columns {
				rows, row = append(rows, row), nil
			}
		}
		if len(row) > 0 {
			rows = append(rows, row)
		}
	}
	add(Mono, func(string) bool { return true })
	add(Colour, func(label string) bool {
		return slices.Contains([]string{"Home, with a fault", "Running, RX+TX", "Result, expected", "Menu"}, label)
	})

	height := gap
	for _, row := range rows {
		height += row[0].picture.Bounds().Dy() + 4 + caption + gap
	}
	sheet := image.NewPaletted(image.Rect(0, 0, columns*(Mono.X+4+gap)+gap, height), nil)
	sheet.Palette = append(slices.Clone(palette), color.RGBA{0x2b, 0x30, 0x38, 0xff}, color.RGBA{0xc8, 0xce, 0xd6, 0xff})
	desk, label := sheet.Palette[len(palette)], sheet.Palette[len(palette)+1]
	draw.Draw(sheet, sheet.Rect, image.NewUniform(desk), image.Point{}, draw.Src)
	y := gap
	for _, row := range rows {
		for i, e := range row {
			at := image.Pt(gap+i*(Mono.X+4+gap), y)
			glass := image.Rectangle{at, at.Add(e.picture.Bounds().Size()).Add(image.Pt(4, 4))}
			draw.Draw(sheet, glass, image.Black, image.Point{}, draw.Src)
			draw.Draw(sheet, glass.Inset(2), e.picture, image.Point{}, draw.Src)
			d := font.Drawer{Dst: sheet, Src: image.NewUniform(label), Face: small, Dot: fixed.P(at.X+2, glass.Max.Y+10)}
			d.DrawString(e.label)
		}
		y += row[0].picture.Bounds().Dy() + 4 + caption + gap
	}
	double := image.NewPaletted(image.Rectangle{Max: sheet.Rect.Max.Mul(2)}, sheet.Palette)
	for y := range double.Rect.Dy() {
		for x := range double.Rect.Dx() {
			double.SetColorIndex(x, y, sheet.ColorIndexAt(x/2, y/2))
		}
	}
	return double
}

func TestGoldenContactSheet(t *testing.T) { golden(t, "contact", contactSheet()) }
