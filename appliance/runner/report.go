package runner

import (
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"linerate/appliance"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// Store keeps results. Append returns the record as it was stored, when it is on the disk.
type Store interface {
	Reserve() (id string)
	Append(results.Record) (results.Record, error)
}

// Reporter turns what engines do into events and records: the one path from a test, whoever began it, to the store and
// to the Hub. It is a throughput.Observer, so a server reports to it directly. Its methods may be called from any
// goroutine.
type Reporter struct {
	Hub   *appliance.Hub
	Store Store
	Log   *slog.Logger
	// Findings names what a doctor makes of a result; nil where there is none.
	Findings func(throughput.Result) []string

	mu      sync.Mutex
	running map[string]*run
}

// run is what the Reporter knows of a running test.
type run struct {
	name     string         // of the run it belongs to
	port     appliance.Port // as it was at the start; no name where the local address is on none
	shared   map[string]bool
	rx, tx   float64 // bits per second now
	elapsed  float64
	rxBits   float64 // of the whole port over the elapsed time
	txBits   float64
	observed float64 // seconds that rxBits and txBits cover
}

var (
	_ throughput.Observer      = (*Reporter)(nil)
	_ throughput.QueueObserver = (*Reporter)(nil)
)

// Started tells of a client's test that a server has accepted.
func (r *Reporter) Started(s throughput.Start) string {
	id := r.Store.Reserve()
	r.begin(id, id, appliance.Test{
		ID: id, Role: throughput.Server, Peer: s.Peer, Local: s.Local, Direction: s.Direction, Protocol: s.Protocol,
		Streams: s.Streams, Seconds: s.Seconds,
	})
	return id
}

// begin publishes the start of a test and remembers its port as it is now.
func (r *Reporter) begin(id, name string, t appliance.Test) {
	state := r.Hub.State()
	port, _, _ := state.PortOf(t.Local)
	me := &run{name: name, port: port, shared: map[string]bool{}}
	r.mu.Lock()
	if r.running == nil {
		r.running = map[string]*run{}
	}
	for otherID, other := range r.running {
		if port.Name != "" && other.port.Name == port.Name {
			other.shared[id] = true
			me.shared[otherID] = true
		}
	}
	r.running[id] = me
	r.mu.Unlock()
	r.Hub.Publish(appliance.TestStarted{At: time.Now(), Test: t})
}

// Progressed tells of the figures of a running test.
func (r *Reporter) Progressed(id string, p throughput.Progress) {
	r.mu.Lock()
	if me := r.running[id]; me != nil {
		me.rx, me.tx = p.RXBPS, p.TXBPS
		if step := p.ElapsedS - me.elapsed; step > 0 {
			rx, tx := r.onPort(me)
			me.rxBits += rx * step
			me.txBits += tx * step
			me.observed += step
		}
		me.elapsed = p.ElapsedS
	}
	r.mu.Unlock()
	r.Hub.Publish(appliance.TestProgressed{At: time.Now(), ID: id, Progress: p})
}

// onPort adds up what all tests on the port of me do now. The caller holds the lock.
func (r *Reporter) onPort(me *run) (rx, tx float64) {
	for _, other := range r.running {
		if other == me || other.port.Name == me.port.Name && me.port.Name != "" {
			rx += other.rx
			tx += other.tx
		}
	}
	return rx, tx
}

// Waiting tells who waits for a turn.
func (r *Reporter) Waiting(list []throughput.Waiter) {
	now := time.Now()
	tests := make([]appliance.Test, len(list))
	for i, w := range list {
		tests[i] = appliance.Test{
			Role: throughput.Server, Peer: w.Peer, Local: w.Local, ElapsedS: now.Sub(w.Since).Seconds(),
		}
	}
	r.Hub.Publish(appliance.ClientsWaiting{At: now, Tests: tests})
}

// Finished stores the result of a test that Started named.
func (r *Reporter) Finished(id string, result throughput.Result) {
	r.finish(id, result, false)
}

// finish completes, stores and publishes a result; last says that the run it belongs to is done. A result that cannot be
// stored is shown all the same, and a fault says so.
func (r *Reporter) finish(id string, result throughput.Result, last bool) results.Record {
	r.mu.Lock()
	me := r.running[id]
	delete(r.running, id)
	r.mu.Unlock()
	if me == nil {
		me = &run{name: id}
	}
	state := r.Hub.State()
	Describe(state, &result, me.port)
	me.share(&result)
	if r.Findings != nil {
		result.Findings = r.Findings(result)
	}
	record := results.Record{Stamp: results.Stamp{ID: id, Run: me.name}, Result: result}
	stored, err := r.Store.Append(record)
	titles := []string{}
	if err != nil {
		r.Log.Error("result not stored", "id", id, "error", err)
		titles = append(titles, "result "+id+" not stored: "+err.Error())
	}
	now := time.Now()
	r.Hub.Publish(appliance.FaultsSeen{At: now, Task: "results", Titles: titles})
	r.Hub.Publish(appliance.TestFinished{At: now, ID: id, Record: stored, Last: last})
	return stored
}

// share fills in what other tests on the port did meanwhile, and the percentages, which count the port as a whole.
func (me *run) share(result *throughput.Result) {
	result.SharedWith = []string{}
	rx, tx := orZero(result.RXBPS), orZero(result.TXBPS)
	total := result.BPS
	if len(me.shared) > 0 && me.observed > 0 {
		for id := range me.shared {
			result.SharedWith = append(result.SharedWith, id)
		}
		slices.Sort(result.SharedWith)
		rx, tx = math.Max(rx, me.rxBits/me.observed), math.Max(tx, me.txBits/me.observed)
		total = rx + tx
	}
	result.PortBPS = new(total)
	setPercent(result, rx, tx)
}

// setPercent leaves the percentages unknown where nothing was measured: 0 % would be a finding.
func setPercent(result *throughput.Result, rx, tx float64) {
	if result.Bytes > 0 || result.Error == "" {
		result.SetPercent(rx, tx)
	}
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// Describe fills in what the box knows of the port a test ran on and of itself, and judges the result. before is the port
// as it was when the test began (the zero Port where the test ran on none): a link that changed since makes the result
// invalid.
func Describe(s appliance.State, result *throughput.Result, before appliance.Port) {
	if p, vlan, ok := s.PortOf(string(result.Local)); ok {
		result.Port = throughput.Text(p.Name)
		if vlan != 0 {
			result.VLAN = new(vlan)
		}
		result.MTU = new(p.MTU)
		result.Driver = throughput.Text(p.Driver)
		result.LinkMbps = p.SpeedMbps
		if p.Duplex != appliance.DuplexUnknown {
			result.Duplex = throughput.Text(p.Duplex)
		}
		if before.Name != "" && (before.Index != p.Index || before.CarrierChanges != p.CarrierChanges) {
			invalidate(result, "the link of "+p.Label()+" changed during the test")
		}
	} else if before.Name != "" {
		invalidate(result, "port "+before.Label()+" lost its address during the test")
	}
	result.Governor = throughput.Text(s.Health.Governor)
	result.Temperature = s.Health.TemperatureC
	if result.Intervals == nil {
		result.Intervals = []throughput.Interval{}
	}
	if result.Findings == nil {
		result.Findings = []string{}
	}
	if result.ExpectBPS != nil && result.Error == "" {
		result.Pass = new(result.BPS >= *result.ExpectBPS)
	}
	setPercent(result, orZero(result.RXBPS), orZero(result.TXBPS))
}

// invalidate marks the result; what went wrong first is kept.
func invalidate(result *throughput.Result, why string) {
	result.Valid = false
	if result.Error == "" {
		result.Error = throughput.Text(why)
	}
}
