package netcfg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"linerate/appliance"
)

// Settle is how long changes are gathered after the first: a port that leaves a bridge makes half a dozen.
const Settle = 100 * time.Millisecond

// reread is how often ports are looked at though nothing was reported: not all that a driver changes is.
const reread = time.Minute

// Watch returns the Task that publishes PortsSeen whenever a port differs, and FaultsSeen for names in the config that
// mean none. It needs no privilege. wanted is asked again for each new State.
func Watch(wanted func(appliance.State) Wanted, log *slog.Logger) appliance.Task {
	const name = "ports"
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return appliance.Task{Name: name, Run: func(ctx context.Context, hub *appliance.Hub) error {
		eyes, tell := newLooker("/"), teller{hub: hub, task: name}
		return loop(ctx, hub, wanted, log, nil, func(w Wanted, _ bool) error {
			seen, err := eyes.look(w)
			if err != nil {
				return err
			}
			tell.ports(seen.Ports)
			tell.faults(seen.Faults)
			return nil
		})
	}}
}

// teller publishes what differs from the last time.
type teller struct {
	hub       *appliance.Hub
	task      string
	lastPorts []appliance.Port
	lastSaid  []string
	told      bool
}

func (t *teller) ports(ports []appliance.Port) {
	if t.told && reflect.DeepEqual(ports, t.lastPorts) {
		return
	}
	t.told, t.lastPorts = true, ports
	t.hub.Publish(appliance.PortsSeen{At: time.Now(), Ports: ports})
}

func (t *teller) faults(titles []string) {
	if len(titles) == 0 && len(t.lastSaid) == 0 || reflect.DeepEqual(titles, t.lastSaid) {
		return
	}
	t.lastSaid = titles
	t.hub.Publish(appliance.FaultsSeen{At: time.Now(), Task: t.task, Titles: titles})
}

// loop calls act at the start, when wake says so, when the kernel reports a change, when what is wanted changes (fresh is true then and at
// the start), and once a minute. It sleeps in between, and returns nil when ctx ends.
func loop(ctx context.Context, hub *appliance.Hub, wanted func(appliance.State) Wanted, log *slog.Logger,
	wake <-chan struct{}, act func(w Wanted, fresh bool) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, ended, err := subscribe(ctx, log, receiveBuffer)
	if err != nil {
		return err
	}
	states := hub.Watch(ctx)
	first, ok := <-states
	if !ok {
		return nil
	}
	w := wanted(first)
	safetyNet := time.NewTicker(reread)
	defer safetyNet.Stop()
	for fresh := true; ; {
		if err := act(w, fresh); err != nil {
			return err
		}
		if fresh, err = sleep(ctx, changes, wake, states, ended, safetyNet.C, wanted, &w); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// sleep ends when there is a reason to act. It says whether that is another wish, which it puts into w.
func sleep(ctx context.Context, changes, wake <-chan struct{}, states <-chan appliance.State, ended <-chan error,
	tick <-chan time.Time, wanted func(appliance.State) Wanted, w *Wanted) (fresh bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case err := <-ended:
			return false, err
		case <-tick:
			return false, nil
		case <-wake:
			return false, nil
		case s, ok := <-states:
			if !ok {
				return false, nil
			}
			if n := wanted(s); !reflect.DeepEqual(n, *w) {
				*w = n
				return true, nil
			}
		case <-changes:
			select {
			case <-ctx.Done():
			case <-time.After(Settle):
			}
			select { // what came meanwhile is seen too
			case <-changes:
			default:
			}
			return false, nil
		}
	}
}

// receiveBuffer of the subscription, in bytes; without privilege the kernel cuts it at net.core.rmem_max.
const receiveBuffer = 1 << 20

// subscribe reports changes of links, addresses and default routes: changes holds at most one that waits to be taken.
// When the kernel had to drop reports, it subscribes anew and reports a change, since one may have been lost. ended
// gets the error that ended it; the end of ctx is none.
func subscribe(ctx context.Context, log *slog.Logger, buffer int) (changes <-chan struct{}, ended <-chan error,
	err error) {
	open := func() (*nl.NetlinkSocket, error) {
		socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
			unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("watch for changes of links: %w", err)
		}
		if err := socket.SetReceiveBufferSize(buffer, false); err != nil {
			log.Debug("could not set the receive buffer of the link watch", "error", err)
		}
		return socket, nil
	}
	socket, err := open()
	if err != nil {
		return nil, nil, err
	}
	out, end := make(chan struct{}, 1), make(chan error, 1)
	signal := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	go func() {
		for {
			stop := context.AfterFunc(ctx, socket.Close)
			err := receive(socket, signal)
			if stop() {
				socket.Close()
			}
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, unix.ENOBUFS) {
				log.Warn("the kernel reported more changes of links than could be taken; looking at all of them again")
				if socket, err = open(); err == nil {
					signal()
					continue
				}
			}
			end <- err
			return
		}
	}()
	return out, end, nil
}

// receive calls signal for each report that matters, until the socket fails or is closed.
func receive(socket *nl.NetlinkSocket, signal func()) error {
	for {
		messages, from, err := socket.Receive()
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return err
			}
			return fmt.Errorf("watch for changes of links: %w", err)
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		for _, m := range messages {
			if matters(m.Header.Type, m.Data) {
				signal()
				break
			}
		}
	}
}

// matters says whether a report of rtnetlink can change what is known of a port. A port that leaves a bridge is also
// reported as deleted, in the family AF_BRIDGE: that is no word about the port. Of routes only default ones count.
func matters(kind uint16, payload []byte) bool {
	if len(payload) < 2 {
		return false
	}
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return payload[0] == unix.AF_UNSPEC // ifinfomsg.ifi_family
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return payload[1] == 0 // rtmsg.rtm_dst_len
	}
	return false
}
