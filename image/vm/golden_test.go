package vm

import (
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write what the panel shows into testdata: look at each picture before you commit it")

// either is the grey of pixels in a golden picture that may be lit or dark.
const either = 0x80

// golden is a picture that the panel has to show. Grey pixels of it match everything.
type golden struct {
	name    string
	picture *image.Gray
}

func goldenPath(name string) string { return filepath.Join("testdata", name+".png") }

// loadGolden reads a picture of testdata.
func loadGolden(name string) (*golden, error) {
	f, err := os.Open(goldenPath(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	gray := image.NewGray(img.Bounds())
	for y := range gray.Rect.Dy() {
		for x := range gray.Rect.Dx() {
			gray.Set(x, y, img.At(x, y))
		}
	}
	return &golden{name, gray}, nil
}

// matches says whether a picture shows what the golden one does.
func (g *golden) matches(p *image.Gray) bool {
	if p.Rect != g.picture.Rect {
		return false
	}
	for i, want := range g.picture.Pix {
		if want != either && want != p.Pix[i] {
			return false
		}
	}
	return true
}

// differs paints where a picture is another: what is missing and what is too much, both in grey.
func (g *golden) differs(p *image.Gray) int {
	n := 0
	for i, want := range g.picture.Pix {
		if want != either && want != p.Pix[i] {
			n++
		}
	}
	return n
}

// mask greys out rectangles of a picture.
func mask(p *image.Gray, rects ...image.Rectangle) *image.Gray {
	out := image.NewGray(p.Rect)
	copy(out.Pix, p.Pix)
	for _, r := range rects {
		for y := r.Min.Y; y < r.Max.Y; y++ {
			for x := r.Min.X; x < r.Max.X; x++ {
				out.SetGray(x, y, color.Gray{Y: either})
			}
		}
	}
	return out
}

func save(path string, img image.Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := png.Encode(f, img); err != nil {
		return err
	}
	return f.Close()
}

func TestGoldenMatches(t *testing.T) {
	p := image.NewGray(image.Rect(0, 0, 8, 8))
	p.Pix[9] = 255
	g := &golden{"", mask(p, image.Rect(4, 4, 8, 8))}
	other := func(i int) *image.Gray {
		q := mask(p)
		q.Pix[i] ^= 255
		return q
	}
	if !g.matches(p) || !g.matches(other(7*8+7)) {
		t.Error("the picture itself, or one that differs below the mask, does not match")
	}
	if g.matches(other(0)) || g.matches(other(9)) || g.matches(image.NewGray(image.Rect(0, 0, 8, 9))) {
		t.Error("a picture that differs outside of the mask matches")
	}
}
