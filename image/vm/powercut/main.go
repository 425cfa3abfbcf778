// Command powercut runs in a small virtual machine and writes results and settings until the power goes. On its standard
// output it says line by line what it found on the disk and what the store and the settings have confirmed since:
//
//	have SEQ BYTES     a result that is there
//	setting N          the setting that is there
//	ready              all has been said; from now on it writes
//	result SEQ BYTES   this result is stored
//	set N              this setting is stored
//	broken WHY         something does not work
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Println("broken usage: powercut FOLDER")
		os.Exit(2)
	}
	err := write(os.Args[1])
	fmt.Println("broken", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(1)
}

// setting is a setting that may be any number up to throughput.MaxSeconds.
const setting = "test.seconds"

// write writes until the power goes, or returns why it cannot.
func write(dir string) error {
	store, err := results.Open(dir, results.SystemClock("/"), nil)
	if err != nil {
		return err
	}
	for _, r := range store.Last(results.MaxResults) {
		fmt.Println("have", r.Seq, r.Bytes)
	}
	paths := config.Paths{StateDir: dir}
	loaded, err := config.Load(paths)
	if err != nil {
		return err
	}
	n := loaded.Config.Test.Seconds
	fmt.Println("setting", n)
	fmt.Println("ready")
	settings := config.NewSettings(paths, nil)
	for {
		stored, err := store.Append(results.Record{Result: result()})
		if err != nil {
			return err
		}
		fmt.Println("result", stored.Seq, stored.Bytes)
		n++
		if err := settings.Set(setting, n); err != nil {
			return err
		}
		fmt.Println("set", n)
	}
}

// result is one of chance, from a few hundred bytes to some blocks of the disk long.
func result() throughput.Result {
	r := throughput.Result{
		Engine: "iperf3", Role: throughput.Server, Peer: "192.0.2.1", Family: 4, Protocol: throughput.TCP,
		Direction: throughput.RX, Streams: 1, Seconds: 10, Bytes: rand.Int64N(1 << 40), Valid: true,
		Label: throughput.Text(strings.Repeat("x", rand.IntN(900))),
	}
	for i := range rand.IntN(200) {
		r.Intervals = append(r.Intervals, throughput.Interval{StartS: float64(i), EndS: float64(i + 1), BPS: rand.Float64() * 1e9})
	}
	return r
}
