package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// bus is a connection to the system's D-Bus, by DBUS_SYSTEM_BUS_ADDRESS or its usual socket. It is opened when it is
// needed and again after it broke.
type bus struct {
	mu    sync.Mutex
	conn  *dbus.Conn
	limit time.Duration // of one call; 0: busTimeout
}

// busTimeout bounds a call: a manager answers in milliseconds, unless it hangs.
const busTimeout = 5 * time.Second

const busAddress = "unix:path=/run/dbus/system_bus_socket" // D-Bus specification, "well-known message bus instances"

func (b *bus) timeout() time.Duration { return cmp.Or(b.limit, busTimeout) }

// errNoBus says that there is no D-Bus here, so that no manager can be reached by it.
var errNoBus = errors.New("no D-Bus")

func (b *bus) open() (*dbus.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	limit := time.AfterFunc(b.timeout(), cancel) // somebody listens there who says nothing
	conn, err := dbus.Connect(cmp.Or(os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), busAddress), dbus.WithContext(ctx))
	if !limit.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("%w: %w", errNoBus, err)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("connect to D-Bus: %w", err)
	}
	b.conn = conn
	return conn, nil
}

// runs says whether somebody holds the name; it starts nobody. Without a bus nobody does.
func (b *bus) runs(ctx context.Context, name string) (bool, error) {
	var has bool
	err := b.call(ctx, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.NameHasOwner",
		[]any{name}, &has)
	if errors.Is(err, errNoBus) {
		return false, nil
	}
	return has, err
}

// call stores what the method returns in out. It does not start a service that does not run.
func (b *bus) call(ctx context.Context, name string, path dbus.ObjectPath, method string, in []any, out ...any) error {
	conn, err := b.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout())
	defer cancel()
	call := conn.Object(name, path).CallWithContext(ctx, method, dbus.FlagNoAutoStart, in...)
	if call.Err != nil {
		return fmt.Errorf("%s: %w", method, call.Err)
	}
	if len(out) == 0 {
		return nil
	}
	if err := call.Store(out...); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func (b *bus) property(ctx context.Context, name string, path dbus.ObjectPath, of, property string, out any) error {
	var v dbus.Variant
	if err := b.call(ctx, name, path, "org.freedesktop.DBus.Properties.Get", []any{of, property}, &v); err != nil {
		return err
	}
	if err := v.Store(out); err != nil {
		return fmt.Errorf("%s.%s: %w", of, property, err)
	}
	return nil
}
