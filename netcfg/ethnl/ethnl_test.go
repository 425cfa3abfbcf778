package ethnl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/netcfg/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Run(m)) }

// veth makes a pair that goes with the test, up, and returns the index of its first end.
func veth(t *testing.T, name, peer string) int {
	t.Helper()
	netnstest.Need(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: peer}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	for _, n := range []string{name, peer} {
		l, err := netlink.LinkByName(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

func open(t *testing.T) *Conn {
	t.Helper()
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestVethAnswers(t *testing.T) {
	index := veth(t, "eth1", "far1")
	c := open(t)

	modes, err := c.LinkModes(index)
	if err != nil || modes.SpeedMbps != 10000 || modes.Duplex != DuplexFull || modes.Autoneg {
		t.Errorf("LinkModes = %+v, %v; want what veth reports: 10000, full, no autonegotiation", modes, err)
	}
	state, err := c.LinkState(index)
	if err != nil || !state.Link {
		t.Errorf("LinkState = %+v, %v; want a link", state, err)
	}
	if info, err := c.LinkInfo(index); err != nil {
		t.Errorf("LinkInfo = %+v, %v", info, err)
	}
	features, err := c.Features(index)
	if err != nil || len(features) < 40 {
		t.Fatalf("Features: %d, %v; want the kernel's whole table", len(features), err)
	}
	if f := features["tx-tcp-segmentation"]; !f.Active || !f.Wanted || f.Fixed {
		t.Errorf("tx-tcp-segmentation = %+v; want on and changeable", f)
	}
	if f := features["loopback"]; f.Active || !f.Fixed {
		t.Errorf("loopback = %+v; want off and fixed", f)
	}
	driver, err := c.Driver("eth1")
	if err != nil || driver.Name != "veth" || driver.Firmware != "" {
		t.Errorf("Driver = %+v, %v", driver, err)
	}
}

func TestFeatureSwitchedOffIsSeen(t *testing.T) {
	index := veth(t, "eth1", "far1")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const setTSO, off = 0x1f, 0 // ETHTOOL_STSO
	if err := ethtoolValue(fd, "eth1", setTSO, off); err != nil {
		t.Fatal(err)
	}
	features, err := open(t).Features(index)
	if f := features["tx-tcp-segmentation"]; err != nil || f.Active || f.Wanted || f.Fixed {
		t.Errorf("tx-tcp-segmentation = %+v, %v; want off, not asked for, changeable", f, err)
	}
}

// What veth does not have must be told apart from an interface that is gone, whatever the question.
func TestErrorsAreToldApart(t *testing.T) {
	index := veth(t, "eth1", "far1")
	c := open(t)
	questions := map[string]func(int) error{
		"LINKINFO":  func(i int) error { _, err := c.LinkInfo(i); return err },
		"LINKMODES": func(i int) error { _, err := c.LinkModes(i); return err },
		"LINKSTATE": func(i int) error { _, err := c.LinkState(i); return err },
		"WOL":       func(i int) error { _, err := c.WoL(i); return err },
		"FEATURES":  func(i int) error { _, err := c.Features(i); return err },
		"RINGS":     func(i int) error { _, err := c.Rings(i); return err },
		"COALESCE":  func(i int) error { _, err := c.Coalesce(i); return err },
		"PAUSE":     func(i int) error { _, err := c.Pause(i); return err },
		"EEE":       func(i int) error { _, err := c.EEE(i); return err },
	}
	const gone = 999999
	for name, ask := range questions {
		if err := ask(gone); !errors.Is(err, ErrNoDevice) || errors.Is(err, ErrNotSupported) {
			t.Errorf("%s of no interface: %v; want ErrNoDevice alone", name, err)
		}
	}
	for _, name := range []string{"WOL", "PAUSE", "EEE"} {
		if err := questions[name](index); !errors.Is(err, ErrNotSupported) || errors.Is(err, ErrNoDevice) {
			t.Errorf("%s of a veth: %v; want ErrNotSupported alone", name, err)
		}
	}
	if _, err := c.Driver("nonesuch"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("Driver of no interface: %v; want ErrNoDevice", err)
	}
	if _, err := c.LinkModes(1); !errors.Is(err, ErrNotSupported) {
		t.Errorf("LINKMODES of lo: %v; want ErrNotSupported", err)
	}
}

// The one question that needs a capability says so in the usual error.
func TestWoLWithoutCapability(t *testing.T) {
	index := veth(t, "eth1", "far1")
	c := open(t)
	dropped := make(chan error)
	go func() { // the thread is never unlocked, so it ends with its capabilities gone
		dropped <- func() error {
			if err := dropCapabilities(); err != nil {
				return err
			}
			_, err := c.WoL(index)
			return err
		}()
	}()
	if err := <-dropped; !errors.Is(err, fs.ErrPermission) {
		t.Errorf("WoL = %v; want fs.ErrPermission", err)
	}
}

func TestCloseEndsTheConn(t *testing.T) {
	netnstest.Need(t)
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.LinkModes(1); err == nil || errors.Is(err, ErrNotSupported) {
		t.Errorf("LinkModes after Close: %v; want an error of the socket", err)
	}
}

// With LINERATE_RECORD set, the replies of this kernel become seeds of FuzzReply.
func TestRecordCorpus(t *testing.T) {
	if os.Getenv("LINERATE_RECORD") == "" {
		t.Skip("LINERATE_RECORD is not set")
	}
	index := veth(t, "eth1", "far1")
	c := open(t)
	c.record = func(cmd uint8, b []byte) { seed(t, "veth", cmd, b[genlHeaderBytes:]) }
	_, _ = c.LinkInfo(index)
	_, _ = c.LinkModes(index)
	_, _ = c.LinkState(index)
	_, _ = c.Features(index)
	_, _ = c.Rings(index)
	_, _ = c.Coalesce(index)
	files, _ := filepath.Glob("testdata/fuzz/FuzzReply/veth-*")
	if slices.Sort(files); len(files) < 4 {
		t.Errorf("recorded %v", files)
	}
}
