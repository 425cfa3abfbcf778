package display

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"

	"periph.io/x/devices/v3/ssd1306/image1bit"
)

// EncodePNG writes a picture as PNG; a monochrome one takes one bit a pixel.
func EncodePNG(picture image.Image) ([]byte, error) {
	if p, ok := picture.(*image1bit.VerticalLSB); ok {
		picture = twoColours(p)
	}
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := e.Encode(&b, picture); err != nil {
		return nil, fmt.Errorf("encode PNG: %w", err)
	}
	return b.Bytes(), nil
}

func twoColours(p *image1bit.VerticalLSB) *image.Paletted {
	out := image.NewPaletted(p.Rect, color.Palette{color.Black, color.White})
	for y := p.Rect.Min.Y; y < p.Rect.Max.Y; y++ {
		for x := p.Rect.Min.X; x < p.Rect.Max.X; x++ {
			if p.BitAt(x, y) {
				out.SetColorIndex(x, y, 1)
			}
		}
	}
	return out
}

// WriteFile writes a picture as PNG. A reader of the path sees the picture before or this one, never half of one.
func WriteFile(path string, picture image.Image) error {
	b, err := EncodePNG(picture)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write picture %s: %w", path, err)
	}
	return nil
}

// File is a Panel whose picture is a PNG file. It has no light to switch: the last picture stays.
type File struct{ path string }

// NewFile makes a Panel of the file at path; its folder must exist.
func NewFile(path string) *File { return &File{path: path} }

// Draw writes the picture to the file.
func (f *File) Draw(picture image.Image) error { return WriteFile(f.path, picture) }

// SetPower does nothing.
func (f *File) SetPower(bool) error { return nil }

// Close leaves the file as it is.
func (f *File) Close() error { return nil }
