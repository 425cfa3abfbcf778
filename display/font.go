package display

import (
	_ "embed"
	"fmt"
	"image"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/image/font/basicfont"
)

// The faces are text art, so that a glyph can be read and mended in an editor: blocks of a line of characters and the
// rows of their glyphs below it, each glyph as wide as its cell, one column apart.
var (
	//go:embed font5x7.txt
	smallArt string
	//go:embed font10x16.txt
	bigArt string

	// small is the face of nearly everything: 5x7 pixels and a row for descenders; 21 characters in 128 pixels.
	small = mustParse(smallArt, 5, 8, 7)
	// medium is for addresses where there is room; it has ASCII only.
	medium = basicfont.Face7x13
	// big has the digits of live rates, nothing else.
	big = mustParse(bigArt, 10, 16, 16)
)

func mustParse(art string, width, height, ascent int) *basicfont.Face {
	f, err := parseFace(art, width, height, ascent)
	if err != nil {
		panic(err) // the art is part of the program, and a test reads it
	}
	return f
}

// parseFace reads text art of glyphs of width x height pixels, ascent of them above the baseline. The space is blank
// and need not be drawn.
func parseFace(art string, width, height, ascent int) (*basicfont.Face, error) {
	rows := map[rune][]string{' ': slices.Repeat([]string{strings.Repeat(".", width)}, height)}
	for block := range strings.SplitSeq(strings.TrimSpace(art), "\n\n") {
		lines := strings.Split(strings.Trim(block, "\n"), "\n")
		if len(lines) != 1+height {
			return nil, fmt.Errorf("font: block %q has %d lines, want %d", lines[0], len(lines), 1+height)
		}
		for i, r := range []rune(lines[0]) {
			if r == ' ' {
				continue
			}
			at := i / (width + 1) * (width + 1)
			if i != at {
				return nil, fmt.Errorf("font: %q is not above its glyph", r)
			}
			if rows[r] != nil {
				return nil, fmt.Errorf("font: %q is there twice", r)
			}
			for _, line := range lines[1:] {
				if len(line) < at+width || strings.Trim(line[at:at+width], ".#") != "" {
					return nil, fmt.Errorf("font: row %q of %q is not %d of '.' and '#'", line, r, width)
				}
				rows[r] = append(rows[r], line[at:at+width])
			}
		}
	}
	var runes []rune
	for r := range rows {
		runes = append(runes, r)
	}
	slices.Sort(runes)

	mask := image.NewAlpha(image.Rect(0, 0, width, height*len(runes)))
	f := &basicfont.Face{
		Advance: width + 1, Width: width, Height: height + 1, Ascent: ascent, Descent: height - ascent, Mask: mask,
	}
	for i, r := range runes {
		for y, row := range rows[r] {
			for x, c := range []byte(row) {
				if c == '#' {
					mask.Pix[mask.PixOffset(x, i*height+y)] = 0xff
				}
			}
		}
		if n := len(f.Ranges); n > 0 && f.Ranges[n-1].High == r {
			f.Ranges[n-1].High++
		} else {
			f.Ranges = append(f.Ranges, basicfont.Range{Low: r, High: r + 1, Offset: i})
		}
	}
	return f, nil
}

// fold maps what writers use for looks to what the faces have.
func fold(r rune) rune {
	switch r {
	case '‘', '’', '′':
		return '\''
	case '“', '”':
		return '"'
	case '—':
		return '–'
	case '\u00a0', '\t', '\n':
		return ' '
	case 'μ': // the Greek letter for the micro sign
		return 'µ'
	}
	return r
}

// count is the length of a text in characters.
func count(text string) int { return utf8.RuneCountInString(text) }

// width is the width of n characters in pixels, without the gap behind the last one.
func width(f *basicfont.Face, n int) int { return max(0, n*f.Advance-(f.Advance-f.Width)) }

// fits is how many characters go into so many pixels.
func fits(f *basicfont.Face, pixels int) int { return max(0, (pixels+f.Advance-f.Width)/f.Advance) }
