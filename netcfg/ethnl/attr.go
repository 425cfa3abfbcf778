package ethnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Bounds on what one reply may hold; the kernel of 2025 sends about 120 link modes and 64 features.
const (
	maxAttributes = 1024
	maxBits       = 1024
	maxName       = 64
)

var errMalformed = errors.New("malformed netlink attributes")

// Walk calls f for each netlink attribute of b, in order, without the flag bits of its type. It ends at f's first
// error, and with an error where a length does not fit.
func Walk(b []byte, f func(kind uint16, value []byte) error) error {
	const header = 4
	for n := 0; len(b) > 0; n++ {
		if len(b) < header {
			return fmt.Errorf("%w: %d bytes left over", errMalformed, len(b))
		}
		if n == maxAttributes {
			return fmt.Errorf("%w: more than %d", errMalformed, maxAttributes)
		}
		length := int(binary.NativeEndian.Uint16(b))
		if length < header || length > len(b) {
			return fmt.Errorf("%w: length %d in %d bytes", errMalformed, length, len(b))
		}
		const typeMask = 0x3fff // NLA_TYPE_MASK: without NLA_F_NESTED and NLA_F_NET_BYTEORDER
		if err := f(binary.NativeEndian.Uint16(b[2:])&typeMask, b[header:length]); err != nil {
			return err
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return nil
}

func u8(b []byte) (uint8, error) {
	if len(b) != 1 {
		return 0, fmt.Errorf("%w: %d bytes for a u8", errMalformed, len(b))
	}
	return b[0], nil
}

func u32(b []byte) (uint32, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%w: %d bytes for a u32", errMalformed, len(b))
	}
	return binary.NativeEndian.Uint32(b), nil
}

// text is a string up to its NUL; bytes that are not printable ASCII make it malformed.
func text(b []byte) (string, error) {
	b, _, _ = bytes.Cut(b, []byte{0})
	if len(b) > maxName {
		return "", fmt.Errorf("%w: a name of %d bytes", errMalformed, len(b))
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return "", fmt.Errorf("%w: byte %#x in a name", errMalformed, c)
		}
	}
	return string(b), nil
}

// bitset is a set of named bits. In one without a mask only Set is filled in.
type bitset struct {
	set  []string // bits that are on, in the kernel's order
	mask []string // bits that the reply speaks of
}

// parseBitset reads the verbose form (ETHTOOL_A_BITSET_BITS): names and values bit by bit.
func parseBitset(b []byte) (bitset, error) {
	const (
		attrNoMask = 1
		attrBits   = 3
		attrBit    = 1
		bitName    = 2
		bitValue   = 3
	)
	var s bitset
	noMask := false
	var bits []byte
	err := Walk(b, func(kind uint16, v []byte) error {
		switch kind {
		case attrNoMask:
			noMask = true
		case attrBits:
			bits = v
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	err = Walk(bits, func(kind uint16, v []byte) error {
		if kind != attrBit {
			return nil
		}
		if len(s.set)+len(s.mask) >= 2*maxBits {
			return fmt.Errorf("%w: more than %d bits", errMalformed, maxBits)
		}
		name, on := "", noMask
		err := Walk(v, func(kind uint16, v []byte) (err error) {
			switch kind {
			case bitName:
				name, err = text(v)
			case bitValue:
				on = true
			}
			return err
		})
		if err != nil || name == "" { // a bit without a name: newer than the kernel's own table
			return err
		}
		if on {
			s.set = append(s.set, name)
		}
		if !noMask {
			s.mask = append(s.mask, name)
		}
		return nil
	})
	return s, err
}
