package netcfg

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// boots remembers how the keeper's first pass went in the last boots. A power cut is no failure: only a pass that said so
// counts, and one that never ended though the box ran on, so that the keeper was started again.
type boots struct {
	Boot   string `json:"boot"`   // the last one
	Ended  bool   `json:"ended"`  // its first pass did
	Failed int    `json:"failed"` // boots in a row whose first pass failed, this one included
}

const (
	bootsFile  = "boots.json"
	maxFailed  = 3
	bootWindow = 10 * time.Minute // a first pass later than that is no boot's
	safeFile   = "linerate-safe"
)

// begin counts the start of a keeper. first says that this is the boot's first one.
func (b boots) begin(boot string) (next boots, first bool) {
	if b.Boot != boot {
		return boots{Boot: boot, Failed: b.Failed}, true
	}
	if !b.Ended { // this boot's first keeper died
		b.Ended, b.Failed = true, b.Failed+1
	}
	return b, false
}

// end counts how the first pass went.
func (b boots) end(good bool) boots {
	if b.Ended {
		return b
	}
	b.Ended, b.Failed = true, b.Failed+1
	if good {
		b.Failed = 0
	}
	return b
}

func (k *Keeper) readBoots() (b boots) {
	text, err := readRegular(filepath.Join(k.dir, bootsFile), 4096)
	if err != nil || json.Unmarshal(text, &b) != nil {
		return boots{}
	}
	return b
}

func (k *Keeper) writeBoots(b boots) {
	text, err := json.Marshal(b)
	if err == nil {
		err = os.MkdirAll(k.dir, 0o755)
	}
	if err == nil {
		err = writeFile(filepath.Join(k.dir, bootsFile), append(text, '\n'), 0o644, true)
	}
	if err != nil {
		k.log.Warn("could not keep how this boot went", "error", err)
	}
}

// Safe says why the network is left alone altogether; "" where it is not.
func (k *Keeper) Safe() string {
	for _, dir := range []string{"/boot/firmware", "/boot"} {
		if _, err := os.Lstat(filepath.Join(k.bootRoot, dir, safeFile)); err == nil {
			return filepath.Join(dir, safeFile) + " is there: hands off the network; remove it and restart the box"
		}
	}
	if n := k.readBoots().Failed; n >= maxFailed {
		return "the network could not be set up in the last 3 boots: hands off; `linerate netcfg --once` tries again"
	}
	return ""
}
