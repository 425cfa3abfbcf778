package manager

import (
	"context"
)

// Systemd starts and stops units of the system's systemd over D-Bus, as systemctl does.
type Systemd struct{ bus bus }

const systemdName = "org.freedesktop.systemd1"

func (s *Systemd) unit(ctx context.Context, method, unit string) error {
	return s.bus.call(ctx, systemdName, "/org/freedesktop/systemd1", systemdName+".Manager."+method,
		[]any{unit, "replace"})
}

// Restart starts the unit anew: a timer counts from the beginning.
func (s *Systemd) Restart(ctx context.Context, unit string) error {
	return s.unit(ctx, "RestartUnit", unit)
}

// Stop stops the unit.
func (s *Systemd) Stop(ctx context.Context, unit string) error { return s.unit(ctx, "StopUnit", unit) }
