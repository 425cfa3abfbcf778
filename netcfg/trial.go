package netcfg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/netcfg/manager"
)

// ConfirmWithin is how long a change that could lock somebody out waits to be confirmed, before all is put back as found.
const ConfirmWithin = 120 * time.Second

// rollbackTimer is the shipped unit that runs `linerate netcfg --rollback` after ConfirmWithin, whatever became of us.
const rollbackTimer = "linerate-rollback.timer"

// Change is a change that waits to be confirmed.
type Change struct {
	Until time.Time `json:"until"` // then it is put back
	Text  string    `json:"text"`
}

// trial is the record of such a change; it is on the disk before the first step. What the managers are told meanwhile
// lies in /run, so that a restart of the box takes it back too.
type trial struct {
	Boot  string       `json:"boot"`
	Hash  string       `json:"hash"`  // of what was wanted
	Began int64        `json:"began"` // seconds since boot
	Until time.Time    `json:"until"`
	Peers []connection `json:"peers"` // who would be cut off
}

// connection is one established TCP connection to an address of an interface.
type connection struct {
	Local netip.AddrPort `json:"local"`
	Peer  netip.AddrPort `json:"peer"`
}

const (
	trialFile     = "trial.json"
	confirmedFile = "confirmed" // holds the hash of what was wanted when it was last confirmed, or applied at boot
	maxTrial      = 64 << 10
	maxPeers      = 64
)

// readTrial reads the change that waits; nil for none. A file that cannot be read is one that has run out: then
// everything is put back.
func (k *Keeper) readTrial() *trial {
	b, err := readRegular(filepath.Join(k.dir, trialFile), maxTrial)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &trial{}
	}
	return parseTrial(b)
}

func parseTrial(b []byte) *trial {
	t := &trial{}
	if json.Unmarshal(b, t) != nil || t.Boot == "" || t.Began < 0 || len(t.Peers) > maxPeers {
		return &trial{}
	}
	return t
}

func (t *trial) over(now time.Duration) bool {
	return int64(now/time.Second) >= t.Began+int64(ConfirmWithin/time.Second)
}

// beginTrial records the change and starts the timer that takes it back. Without the record nothing may be changed.
func (k *Keeper) beginTrial(ctx context.Context, w Wanted, peers []connection, boot string) (t *trial, note string, err error) {
	t = &trial{Boot: boot, Hash: w.hash(), Began: int64(uptime() / time.Second), Until: time.Now().Add(ConfirmWithin),
		Peers: peers[:min(len(peers), maxPeers)]}
	b, err := json.Marshal(t)
	if err == nil {
		err = os.MkdirAll(k.dir, 0o755)
	}
	if err == nil {
		err = writeFile(filepath.Join(k.dir, trialFile), b, 0o644, true)
	}
	if err != nil {
		return nil, "", fmt.Errorf("record a change that could cut off %v: %w; nothing was changed", peers[0].Peer.Addr(), err)
	}
	if err := k.timer.Restart(ctx, rollbackTimer); err != nil {
		note = fmt.Sprintf("%s could not be started (%v): only a running keeper takes the change back", rollbackTimer, err)
	}
	return t, note, nil
}

// endTrial forgets the change that waits.
func (k *Keeper) endTrial(ctx context.Context) error {
	err := os.Remove(filepath.Join(k.dir, trialFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("forget the change that waited: %w", err)
	}
	if err := k.timer.Stop(ctx, rollbackTimer); err != nil {
		k.log.Debug("could not stop the timer; it will find nothing to do", "error", err)
	}
	return syncDir(k.dir)
}

// confirm makes the change that waits lasting.
func (k *Keeper) confirm(ctx context.Context, t *trial) error {
	if err := writeFile(filepath.Join(k.dir, confirmedFile), []byte(t.Hash+"\n"), 0o644, true); err != nil {
		return fmt.Errorf("confirm the change: %w", err)
	}
	return k.endTrial(ctx)
}

// trust keeps what was applied at boot from being put on trial when a port is plugged in again.
func (k *Keeper) trust(w Wanted) {
	if err := writeFile(filepath.Join(k.dir, confirmedFile), []byte(w.hash()+"\n"), 0o644, true); err != nil {
		k.log.Warn("could not keep which config was applied at boot", "error", err)
	}
}

// trusted says whether this config was confirmed, or applied at boot: what it asks for later needs no other word.
func (k *Keeper) trusted(w Wanted) bool {
	b, err := readRegular(filepath.Join(k.dir, confirmedFile), 1024)
	return err == nil && strings.TrimSpace(string(b)) == w.hash()
}

// Rollback puts everything back as found where a change waits that nobody confirmed, in this boot or an earlier one; the
// config that asked for it is left alone from then on. Without such a change it does nothing.
func (k *Keeper) Rollback(ctx context.Context, w Wanted) (Report, error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	t := k.readTrial()
	if t == nil {
		return Report{Notes: []string{"no change waits to be confirmed"}}, nil
	}
	return k.rollback(ctx, w, t)
}

func (k *Keeper) rollback(ctx context.Context, w Wanted, t *trial) (Report, error) {
	k.log.Warn("nobody confirmed the change: everything is put back as found")
	hash := t.Hash
	if hash == "" {
		hash = w.hash()
	}
	r, err := k.restore(ctx, w, hash, rolledBackNote)
	if err != nil {
		return r, err
	}
	return r, k.endTrial(ctx)
}

const rolledBackNote = "put back as found, since nobody confirmed the change within 2 min: nothing is changed until the " +
	"config differs or `linerate netcfg --once` runs"

// atRisk lists the connections that the steps could cut off: to addresses of a port that is changed, or of its bridge.
func atRisk(seen Seen, steps []Step, all []connection) []connection {
	touched := map[string]bool{}
	for _, s := range steps {
		switch s.Kind {
		case LeaveBridge, JoinBridge, RemoveAddress, SetMTU, SetMAC, SetDown, WriteFile, RemoveFile:
			touched[s.Port], touched[s.bridge] = true, true
		}
	}
	own := func(a netip.Addr) bool {
		return slices.ContainsFunc(seen.addresses, func(b manager.Address) bool { return b.Prefix.Addr() == a })
	}
	var out []connection
	for _, c := range all {
		at := slices.IndexFunc(seen.addresses, func(a manager.Address) bool {
			return a.Prefix.Addr() == c.Local.Addr() && touched[a.Interface]
		})
		if at >= 0 && !own(c.Peer.Addr()) {
			out = append(out, c)
		}
	}
	return out
}

// reached says whether somebody who would be cut off has come by a new connection since: the change does no harm to them.
func (t *trial) reached(now []connection) bool {
	return slices.ContainsFunc(now, func(c connection) bool {
		known := slices.ContainsFunc(t.Peers, func(p connection) bool { return p.Peer.Addr() == c.Peer.Addr() })
		return known && !slices.Contains(t.Peers, c)
	})
}

// maxConnections are looked at; a box under more is no longer to be managed over the network.
const maxConnections = 10000

// connections lists the established TCP connections of this network namespace.
func connections() []connection {
	var out []connection
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil {
			continue // no inet_diag in this kernel
		}
		for _, s := range sockets[:min(len(sockets), maxConnections)] {
			const established = 1 // TCP_ESTABLISHED
			local, ok := netip.AddrFromSlice(s.ID.Source)
			peer, ok2 := netip.AddrFromSlice(s.ID.Destination)
			if s.State == established && ok && ok2 {
				out = append(out, connection{netip.AddrPortFrom(local.Unmap(), s.ID.SourcePort),
					netip.AddrPortFrom(peer.Unmap(), s.ID.DestinationPort)})
			}
		}
	}
	return out
}

// uptime is the time since boot, which no setting of the clock changes.
func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
