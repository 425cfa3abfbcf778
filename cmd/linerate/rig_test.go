package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"linerate/appliance"
)

// program is the built command; TestMain builds it once.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "linerate-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		program = filepath.Join(dir, "linerate")
		if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// need skips the test where something is missing that it cannot do without.
func need(t *testing.T, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s: %v", p, err)
		}
	}
}

// rig is two hosts in namespaces of their own: "box", with eth1 and eth2 in the bridge br0, and "peer" at the other end of
// both cables, each cable in a subnet of its own.
type rig struct {
	t         *testing.T
	box, peer string // namespaces
	dir       string // of the box's files
}

func newRig(t *testing.T) *rig {
	t.Helper()
	need(t, "ip", "ss", "iperf3", "setpriv", "unshare", "hostname")
	dir, err := os.MkdirTemp("", "linerate-box")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, box: fmt.Sprintf("lr%dbox", os.Getpid()), peer: fmt.Sprintf("lr%dpeer", os.Getpid())}
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", r.box).Run()
		_ = exec.Command("ip", "netns", "del", r.peer).Run()
		os.RemoveAll(dir)
	})
	for _, d := range []string{"state", "run", "etc"} {
		if err := os.MkdirAll(r.file(d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(r.file(d), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	// As tmpfiles.d makes it: the server may add files, the keeper's are its own.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(r.file("run"), 0, nobody), os.Chmod(r.file("run"), 0o775|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	r.must("ip", "netns", "add", r.box)
	r.must("ip", "netns", "add", r.peer)
	for _, port := range []string{"eth1", "eth2"} {
		r.must("ip", "link", "add", port, "netns", r.box, "type", "veth", "peer", "name", port, "netns", r.peer)
		// The same MAC every time gives the same link-local address, which the display shows.
		r.in(r.box, "ip", "link", "set", port, "address", "02:00:5e:10:00:0"+port[3:])
		r.in(r.peer, "ip", "link", "set", port, "up")
	}
	r.in(r.peer, "ip", "address", "add", "192.0.2.2/24", "dev", "eth1")
	r.in(r.peer, "ip", "link", "set", "lo", "up")
	for _, words := range []string{
		"link set lo up", "link add br0 type bridge", "link set br0 up", "address add 192.0.2.1/24 dev br0",
		"link set eth1 master br0", "link set eth2 master br0", "link set eth1 up", "link set eth2 up",
		"route add 203.0.113.0/24 via 192.0.2.2",
	} {
		r.in(r.box, append([]string{"ip"}, strings.Fields(words)...)...)
	}
	return r
}

const nobody = 65534

func (r *rig) file(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, text string) string {
	r.t.Helper()
	path := r.file(name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// must runs a program that has to succeed.
func (r *rig) must(words ...string) string {
	r.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("%s: %v\n%s%s", strings.Join(words, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func (r *rig) in(ns string, words ...string) string {
	r.t.Helper()
	return r.must(append([]string{"ip", "netns", "exec", ns}, words...)...)
}

// folders are the flags that keep the program to the rig's files.
func (r *rig) folders() []string {
	return []string{"--config", r.file("etc/linerate.toml"), "--state-dir", r.file("state"), "--run-dir", r.file("run")}
}

// linerate runs a command in the box as root.
func (r *rig) linerate(words ...string) (stdout, stderr string, status int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	words = append(append([]string{"netns", "exec", r.box, program}, words...), r.folders()...)
	cmd := exec.CommandContext(ctx, "ip", words...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		r.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// serve starts the appliance in the box as a user without any capability, as its unit does, and waits until it answers.
func (r *rig) serve() *exec.Cmd {
	r.t.Helper()
	id := fmt.Sprint(nobody)
	words := append([]string{"netns", "exec", r.box, "unshare", "--uts", "sh", "-c", `hostname linerate-1 && exec "$@"`, "sh", "setpriv", "--reuid", id, "--regid", id, "--clear-groups",
		"--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs", program, "serve"}, r.folders()...)
	cmd := exec.Command("ip", words...)
	log, err := os.Create(r.file("serve.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			r.t.Error("the appliance did not end within 10 s of SIGTERM")
			_ = cmd.Process.Kill()
			<-done
		}
		log.Close()
		if r.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			r.t.Logf("log of the appliance:\n%s", text)
		}
	})
	r.until("the appliance answers", func() bool {
		_, _, status := r.linerate("status")
		return status == 0
	})
	return cmd
}

func (r *rig) state() appliance.State {
	r.t.Helper()
	out, errs, status := r.linerate("status", "--json")
	var s appliance.State
	if err := json.Unmarshal([]byte(out), &s); err != nil || status != 0 {
		r.t.Fatalf("status: %v %s", err, errs)
	}
	return s
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			r.t.Fatalf("waited 20 s in vain: %s", what)
		}
		time.Sleep(50 * time.Millisecond) // between two looks
	}
}

// iperf3 runs Debian's client against the box and returns its report. iperf3 3.12 exits 0 on errors with -J, so the report
// alone counts.
func (r *rig) iperf3(words ...string) report3 {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", r.peer, "iperf3", "-J"}, words...)...).Output()
	var rep report3
	if err := json.Unmarshal(out, &rep); err != nil {
		r.t.Fatalf("iperf3 %v: %v\n%s", words, err, out)
	}
	return rep
}

// report3 is what is looked at of iperf3's report.
type report3 struct {
	Error string `json:"error"`
	End   struct {
		Sent     amount `json:"sum_sent"`
		Received amount `json:"sum_received"`
	} `json:"end"`
}

type amount struct {
	Bytes   float64 `json:"bytes"`
	BPS     float64 `json:"bits_per_second"`
	Seconds float64 `json:"seconds"`
}
