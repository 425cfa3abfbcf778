// Package runner carries out the tests the State asks for and reports every test, those that clients begin included.
//
// The Runner looks at State.Request, drives an engine, and publishes. A request is always answered: by a record for each
// test, or by TestFailed where there can be none, even if the Runner itself dies. It runs one request at a time; Apply
// takes no second one while one is there.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"linerate/appliance"
	"linerate/appliance/throughput"
)

// Runner drives the engines.
type Runner struct {
	Engines  map[string]throughput.Engine // by the name in Spec.Engine
	Reporter *Reporter
	Log      *slog.Logger
	// Local names the address a test leaves by; nil asks the kernel's routes.
	Local func(context.Context, appliance.State, throughput.Spec) string

	done int // number of the last request that was carried out
}

// Run is the Runner's Task.
func (r *Runner) Run(ctx context.Context, hub *appliance.Hub) error {
	for state := range hub.Watch(ctx) {
		if request := state.Request; request != nil && request.Number > r.done {
			r.done = request.Number
			r.carryOut(ctx, hub, request)
		}
	}
	return nil
}

// carryOut runs the tests of one request, one after the other. A test that moved nothing at all ends the request: its
// other directions would wait for the same silence.
func (r *Runner) carryOut(ctx context.Context, hub *appliance.Hub, request *appliance.Request) {
	ids := request.IDs
	for len(ids) < len(request.Specs) {
		ids = append(ids[:len(ids):len(ids)], r.Reporter.Store.Reserve())
	}
	current, answered := "", false
	defer func() {
		if answered {
			return
		}
		why := "the appliance is stopping"
		p := recover()
		if p != nil {
			why = fmt.Sprint("internal fault: ", p)
		}
		hub.Publish(appliance.TestFailed{At: time.Now(), ID: current, Err: why})
		if p != nil {
			panic(p) // the supervisor logs it
		}
	}()
	for i, spec := range request.Specs {
		current = ids[i]
		cancelled := r.runOne(ctx, hub, ids[0], current, spec, i+1 == len(request.Specs))
		if cancelled {
			answered = true
			return
		}
	}
	answered = true
}

// runOne runs one test and says whether the request is over with it.
func (r *Runner) runOne(ctx context.Context, hub *appliance.Hub, name, id string, spec throughput.Spec, last bool) (over bool) {
	if resolved, err := Resolve(hub.State(), spec); err == nil {
		spec = resolved
	}
	local := r.Local
	if local == nil {
		local = leavesBy
	}
	r.Reporter.begin(id, name, appliance.Test{
		ID: id, Role: throughput.Client, Peer: spec.Host, Target: spec.Target, Direction: spec.Direction,
		Protocol: spec.Protocol, Streams: spec.Streams, Seconds: spec.Seconds, Local: local(ctx, hub.State(), spec),
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for state := range hub.Watch(ctx) {
			if request := state.Request; request == nil || request.Cancelled {
				cancel()
			}
		}
	}()
	result, err := r.run(ctx, hub.State(), id, spec)
	if err != nil && result.Error == "" {
		result.Error = throughput.Text(err.Error())
	}
	over = last || ctx.Err() != nil || err != nil && result.Bytes == 0
	r.Reporter.finish(id, result, over)
	return over
}

// leavesBy is the local address that a test to the Spec's host uses, as the routes say; "" where that cannot be told.
func leavesBy(ctx context.Context, s appliance.State, spec throughput.Spec) string {
	for _, p := range s.Ports {
		if p.Name == spec.Bind {
			return p.Address()
		}
	}
	if net.ParseIP(spec.Bind) != nil {
		return spec.Bind
	}
	network := "udp"
	if spec.Family != 0 {
		network += strconv.Itoa(spec.Family)
	}
	// Connecting a UDP socket asks the routes and sends nothing.
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, network, net.JoinHostPort(spec.Host, "9"))
	if err != nil {
		return ""
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().String()
}

func (r *Runner) run(ctx context.Context, state appliance.State, id string, spec throughput.Spec) (throughput.Result, error) {
	result, err := Execute(ctx, state, r.Engines, spec, func(p throughput.Progress) { r.Reporter.Progressed(id, p) })
	if err != nil {
		r.Log.Warn("test failed", "id", id, "host", spec.Host, "error", err)
	}
	return result, err
}

// Execute runs one test to whoever the Spec names: a configured target by its name, or a host. The result is complete but
// for what the box knows of its port (Describe). It needs no Hub, so that `linerate test` works without the appliance.
func Execute(ctx context.Context, s appliance.State, engines map[string]throughput.Engine, spec throughput.Spec,
	progress func(throughput.Progress)) (throughput.Result, error) {
	spec, err := Resolve(s, spec)
	result := throughput.Result{
		Engine: throughput.Text(spec.Engine), Role: throughput.Client, Peer: throughput.Text(spec.Host),
		Protocol: spec.Protocol, Direction: spec.Direction, Streams: spec.Streams, OmitS: spec.OmitS,
	}
	if err == nil {
		err = spec.Check()
	}
	engine := engines[spec.Engine]
	if err == nil && engine == nil {
		err = fmt.Errorf("engine %q is not built in", spec.Engine)
	}
	if err == nil {
		var measured throughput.Result
		measured, err = engine.Run(ctx, spec, progress)
		if measured.Engine != "" {
			result = measured
		}
	}
	if net.ParseIP(spec.Host) == nil {
		result.PeerName = throughput.Text(spec.Host)
	}
	result.Target, result.Label = throughput.Text(spec.Target), throughput.Text(spec.Label)
	if spec.ExpectBPS > 0 {
		result.ExpectBPS = new(spec.ExpectBPS)
	}
	if err != nil {
		result.Valid = false
		if result.Error == "" {
			result.Error = throughput.Text(err.Error())
		}
	}
	return result, err
}

// errNoHost is what a Spec without anybody to talk to gets.
var errNoHost = errors.New("neither host nor target is named: say whom to test to")

// Resolve fills in the Spec what its target's entry says and the defaults, and turns `via` into the address to leave by.
func Resolve(s appliance.State, spec throughput.Spec) (throughput.Spec, error) {
	name := spec.Target
	if name == "" {
		name = spec.Host
	}
	if t, ok := s.FindTarget(name); ok && (t.Source == appliance.SourceConfig || spec.Host == "") {
		spec.Target, spec.Host = t.Name, t.Host
		if spec.TCPPort == 0 {
			spec.TCPPort = t.TCPPort
		}
		if spec.Engine == "" {
			spec.Engine = t.Engine
		}
		if spec.Via == "" {
			spec.Via = t.Via
		}
		if spec.ExpectBPS == 0 {
			spec.ExpectBPS = t.ExpectBPS
		}
	} else if spec.Host == "" && spec.Target != "" {
		return spec.WithDefaults(), fmt.Errorf("target %q is not known: name a [[target]] of the config, or a host", spec.Target)
	}
	spec = spec.WithDefaults()
	if spec.Host == "" {
		return spec, errNoHost
	}
	if spec.Via != "" && spec.Bind == "" {
		for _, p := range s.Ports {
			if p.Name == spec.Via || p.Role == spec.Via {
				spec.Bind = p.Name
				return spec, nil
			}
		}
		return spec, fmt.Errorf("there is no port %q to leave by: `linerate ports` lists them", spec.Via)
	}
	return spec, nil
}

// Terminator ends a client's test on the server that runs it.
type Terminator interface {
	Terminate(id string) bool
}

// EndTests is the Task that ends the tests of clients when somebody at the box wants it.
func EndTests(server Terminator) appliance.Task {
	return appliance.Task{Name: "end-tests", Run: func(ctx context.Context, hub *appliance.Hub) error {
		for state := range hub.Watch(ctx) {
			for _, t := range state.Running {
				if t.Cancelled && t.Role == throughput.Server {
					server.Terminate(t.ID)
				}
			}
		}
		return nil
	}}
}

// answerWithin is how long a server that is looked for may take.
const answerWithin = 300 * time.Millisecond

// SeekServers is the Task that asks the last peers and the gateways for a server when a page that names targets is open
// and none is configured.
func SeekServers() appliance.Task {
	return appliance.Task{Name: "seek-servers", Run: func(ctx context.Context, hub *appliance.Hub) error {
		for state := range hub.Watch(ctx) {
			if state.Looking() {
				hub.Publish(appliance.TargetsSeen{At: time.Now(), Found: ask(ctx, state.Candidates())})
			}
		}
		return nil
	}}
}

// ask connects to all candidates at once.
func ask(ctx context.Context, candidates []appliance.Target) []appliance.Target {
	type answer struct {
		i  int
		ok bool
	}
	answers := make(chan answer, len(candidates))
	for i, c := range candidates {
		go func() {
			d := net.Dialer{Timeout: answerWithin}
			port := c.TCPPort
			if port == 0 {
				port = 5201
			}
			conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(port)))
			if err == nil {
				conn.Close()
			}
			answers <- answer{i, err == nil}
		}()
	}
	for range candidates {
		a := <-answers
		candidates[a.i].Answers = new(a.ok)
	}
	return candidates
}
