package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/pflag"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/runner"
	"linerate/appliance/throughput"
	"linerate/appliance/web"
)

var testCommand = command{
	name: "test", args: "HOST [FLAGS]", short: "run one test against any server, with iperf3's own flags",
	example: "linerate test 192.0.2.10 -R -t 10 -P 4 --expect 2.3G",
	flags:   testFlags,
}

func testFlags(set *pflag.FlagSet) func(context.Context, env, []string) error {
	var (
		s                                                throughput.Spec
		bytes, blocks, rate, length, window, mss, expect string
		reverse, bidir, udp, four, six, asJSON           bool
		dscp                                             string
	)
	set.IntVarP(&s.TCPPort, "port", "p", 0, "port of the server (default: the engine's own, iperf3 5201)")
	set.Float64VarP(&s.Seconds, "time", "t", 0, "seconds to test (default 10)")
	set.StringVarP(&bytes, "bytes", "n", "", "end after so many bytes, in place of -t (K, M, G: 1024)")
	set.StringVarP(&blocks, "blockcount", "k", "", "end after so many blocks, in place of -t")
	set.BoolVarP(&reverse, "reverse", "R", false, "the server sends, the box receives")
	set.BoolVar(&bidir, "bidir", false, "both directions at once")
	set.IntVarP(&s.Streams, "parallel", "P", 1, "streams at once")
	set.BoolVarP(&udp, "udp", "u", false, "UDP in place of TCP")
	set.StringVarP(&rate, "bitrate", "b", "", "rate of a stream, as 300M (udp: 1M if not given; 0: no limit)")
	set.StringVarP(&length, "length", "l", "", "bytes of a block")
	set.Float64VarP(&s.OmitS, "omit", "O", 0, "seconds at the start that do not count")
	set.Float64VarP(&s.IntervalS, "interval", "i", 1, "seconds between the lines of a running test")
	set.StringVarP(&window, "window", "w", "", "socket buffers in bytes")
	set.StringVarP(&mss, "set-mss", "M", "", "TCP maximum segment size")
	set.BoolVarP(&s.NoDelay, "no-delay", "N", false, "switch Nagle's algorithm off")
	set.IntVarP(&s.TOS, "tos", "S", 0, "IP type of service, 0-255")
	set.StringVar(&dscp, "dscp", "", "DSCP, 0-63 or a name as ef, af41, cs1")
	set.StringVarP(&s.Congestion, "congestion", "C", "", "TCP congestion control")
	set.StringVarP(&s.Title, "title", "T", "", "text that the server may log")
	set.BoolVarP(&s.ZeroCopy, "zerocopy", "Z", false, "send without copying where the kernel can")
	set.BoolVarP(&four, "version4", "4", false, "IPv4 only")
	set.BoolVarP(&six, "version6", "6", false, "IPv6 only")
	set.StringVarP(&s.Bind, "bind", "B", "", "local address or port to leave by")
	set.IntVar(&s.ConnectTimeoutMS, "connect-timeout", 5000, "milliseconds to wait for the server")
	set.StringVar(&s.Engine, "engine", "", "iperf3 or nuttcp (default iperf3)")
	set.StringVar(&expect, "expect", "", "rate that makes the test pass, as 2.3G")
	set.StringVar(&s.Label, "label", "", "text to keep with the result")
	set.BoolVar(&asJSON, "json", false, "print the result as JSON")

	return func(ctx context.Context, e env, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usagef("name one HOST to test to, as in: linerate test 192.0.2.10")
		}
		s.Host = args[0]
		s.Direction = throughput.TX
		switch {
		case reverse && bidir:
			return usagef("-R and --bidir exclude one another")
		case reverse:
			s.Direction = throughput.RX
		case bidir:
			s.Direction = throughput.Both
		}
		if udp {
			s.Protocol = throughput.UDP
		}
		switch {
		case four && six:
			return usagef("-4 and -6 exclude one another")
		case four:
			s.Family = 4
		case six:
			s.Family = 6
		}
		if err := numbers(&s, bytes, blocks, rate, length, window, mss, expect, dscp); err != nil {
			return err
		}
		if err := s.WithDefaults().Check(); err != nil {
			return usageError{err}
		}
		record, err := runTest(ctx, e, s, asJSON)
		if err != nil {
			return err
		}
		return report(e, record, asJSON)
	}
}

// numbers reads the flags that are written with units.
func numbers(s *throughput.Spec, bytes, blocks, rate, length, window, mss, expect, dscp string) error {
	size := func(name, text string, into func(int64)) error {
		if text == "" {
			return nil
		}
		n, err := throughput.ParseSize(text)
		if err != nil {
			return usagef("%s %s: %v", name, text, err)
		}
		into(n)
		return nil
	}
	bps := func(name, text string, into *float64) error {
		if text == "" {
			return nil
		}
		v, err := config.ParseRate(text)
		if err != nil {
			return usagef("%s %s: %v", name, text, err)
		}
		*into = v
		return nil
	}
	return errors.Join(
		size("-n", bytes, func(n int64) { s.Bytes = n }),
		size("-k", blocks, func(n int64) { s.Blocks = n }),
		size("-l", length, func(n int64) { s.BlockBytes = int(n) }),
		size("-w", window, func(n int64) { s.WindowBytes = int(n) }),
		size("-M", mss, func(n int64) { s.MSS = int(n) }),
		bps("-b", rate, &s.RateBPS),
		bps("--expect", expect, &s.ExpectBPS),
		func() error {
			if dscp == "" {
				return nil
			}
			tos, err := throughput.ParseDSCP(dscp)
			if err != nil {
				return usagef("--dscp %s: %v", dscp, err)
			}
			s.TOS = tos
			return nil
		}(),
	)
}

// runTest runs the test on the appliance where there is one, else alone.
func runTest(ctx context.Context, e env, s throughput.Spec, quiet bool) (results.Record, error) {
	client := web.NewClient(e.socket())
	var accepted web.Accepted
	// HOST may be a target's name; the API wants that by its own key.
	var targets []appliance.Target
	err := client.Get(ctx, "/api/v1/targets", &targets)
	if err == nil {
		for _, t := range targets {
			if t.Name == s.Host && t.Source == appliance.SourceConfig {
				s.Target, s.Host = t.Name, ""
			}
		}
		err = client.Send(ctx, http.MethodPost, "/api/v1/tests", s, &accepted)
	}
	switch {
	case err == nil:
		return follow(ctx, e, client, accepted.ID, s, quiet)
	case errors.Is(err, web.ErrNotRunning), errors.Is(err, web.ErrForbidden):
		if s.Host == "" {
			s.Host = s.Target
		}
		fmt.Fprintf(e.err, "linerate test: running alone, the result is not stored: %v\n", err)
		return runAlone(ctx, e, s, quiet)
	}
	return results.Record{}, err
}

// follow shows a test that the appliance runs until its result is there. When the command is interrupted it cancels the
// test and still waits for what was measured.
func follow(ctx context.Context, e env, client *web.Client, id string, s throughput.Spec, quiet bool) (results.Record, error) {
	live := newLines(e, s, quiet)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		_ = client.Send(watching, http.MethodDelete, "/api/v1/tests/"+id, nil, nil) // it may have ended meanwhile
	})()
	var record results.Record
	begun, running, found := false, false, false
	err := client.Events(watching, func(data []byte) bool {
		var state struct {
			Running []appliance.Test `json:"running"`
			Results []struct {
				ID string `json:"id"`
			} `json:"results"`
		}
		if json.Unmarshal(data, &state) != nil {
			return true
		}
		running = false
		for _, t := range state.Running {
			if t.ID == id {
				begun, running = true, true
				live.progress(throughput.Progress{ElapsedS: t.ElapsedS, RXBPS: t.RXBPS, TXBPS: t.TXBPS, Retransmits: t.Retransmits, RTTMS: t.RTTMS})
			}
		}
		for _, r := range state.Results {
			found = found || r.ID == id
		}
		return !found && (running || !begun)
	})
	switch {
	case errors.Is(err, web.ErrNotRunning):
		return record, fmt.Errorf("the appliance stopped during test %s: what it measured is in `linerate results`", id)
	case err != nil:
		return record, fmt.Errorf("test %s runs on, its result will be in `linerate results`: %w", id, err)
	case !found:
		return record, fmt.Errorf("the appliance gave up test %s: its log and `linerate status` say why", id)
	}
	if err = client.Get(watching, "/api/v1/results/"+id, &record); err == nil {
		live.end(record.Result)
	}
	return record, err
}

// runAlone runs the test in this process and stores nothing.
func runAlone(ctx context.Context, e env, s throughput.Spec, quiet bool) (results.Record, error) {
	state := look(e)
	live := newLines(e, s, quiet)
	result, _ := runner.Execute(ctx, state, engines(), s, live.progress)
	live.end(result)
	before, _, _ := state.PortOf(string(result.Local))
	runner.Describe(look(e), &result, before)
	result.SharedWith, result.PortBPS = []string{}, new(result.BPS)
	return results.Record{Stamp: results.SystemClock(e.root).Stamp(), Result: result}, nil
}

// report prints the result and judges it.
func report(e env, r results.Record, asJSON bool) error {
	if asJSON {
		if err := printJSON(e.out, r); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e.out, summary(r))
	}
	if r.Error != "" {
		if !asJSON {
			return errors.New(string(r.Error))
		}
		return errFailed
	}
	if !r.Valid || r.Pass != nil && !*r.Pass {
		return errFailed
	}
	return nil
}

// lines prints a line for each interval of a running test.
type lines struct {
	e       env
	spec    throughput.Spec
	quiet   bool
	begun   bool
	start   float64 // of the interval
	last    float64 // when bits was last added to
	bits    float64
	printed float64 // bits of all lines but the omitted
	total   *int64  // retransmits of the test
	retr    int64   // those that have been printed
	rtt     *float64
}

func newLines(e env, s throughput.Spec, quiet bool) *lines {
	return &lines{e: e, spec: s.WithDefaults(), quiet: quiet}
}

func (l *lines) progress(p throughput.Progress) {
	if l.quiet || p.ElapsedS <= l.last {
		return
	}
	if !l.begun {
		l.begun = true
		fmt.Fprintln(l.e.out, intervalHead)
	}
	l.bits += p.BPS() * (p.ElapsedS - l.last)
	l.last = p.ElapsedS
	if p.RTTMS != nil {
		l.rtt = p.RTTMS
	}
	if p.Retransmits != nil {
		l.total = p.Retransmits
	}
	omitted := l.start < l.spec.OmitS
	if l.last-l.start >= l.spec.IntervalS*0.98 || omitted && l.last >= l.spec.OmitS {
		l.line()
	}
}

// line prints what has come since the line before. Times count from the end of the omitted seconds, as iperf3's do.
func (l *lines) line() {
	start, end, note := l.start-l.spec.OmitS, l.last-l.spec.OmitS, ""
	if l.start < l.spec.OmitS {
		start, end, note = l.start, l.last, "  (omitted)"
	}
	var retransmits *int64
	if l.total != nil {
		retransmits = new(*l.total - l.retr)
		l.retr = *l.total
	}
	fmt.Fprintln(l.e.out, intervalLine(l.spec.Direction, start, end, l.bits/(end-start), retransmits, l.rtt)+note)
	if l.start >= l.spec.OmitS {
		l.printed += l.bits
	}
	l.start, l.bits = l.last, 0
}

// end prints the last line, where the test ended within one. The last progress may not have been seen: what the result has
// beyond the lines printed is of that line.
func (l *lines) end(r throughput.Result) {
	if end := r.Seconds + l.spec.OmitS; l.begun && l.start >= l.spec.OmitS && end > l.last {
		l.last, l.bits = end, max(0, r.BPS*r.Seconds-l.printed)
		if r.Retransmits != nil {
			l.total = r.Retransmits
		}
	}
	if l.last-l.start >= l.spec.IntervalS*0.1 {
		l.line()
	}
}
