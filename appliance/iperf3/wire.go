package iperf3

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// state is the one byte by which the two ends keep in step (iperf_api.h).
type state int8

const (
	stateTestStart       state = 1
	stateTestRunning     state = 2
	stateTestEnd         state = 4
	stateParamExchange   state = 9
	stateCreateStreams   state = 10
	stateServerTerminate state = 11
	stateClientTerminate state = 12
	stateExchangeResults state = 13
	stateDisplayResults  state = 14
	stateDone            state = 16
	stateAccessDenied    state = -1
	stateServerError     state = -2
)

// code is an error number of iperf_api.h, as SERVER_ERROR carries it. Only those that version 3.12 knows by their text are
// sent, but for codeMaxDuration to clients that know it.
type code int32

const (
	codeDuration    code = 5
	codeStreams     code = 6
	codeBlock       code = 7
	codeWindow      code = 8
	codeMSS         code = 10
	codeOmit        code = 12
	codeNoSCTP      code = 18
	codeUDPBlock    code = 20
	codeTOS         code = 21
	codeTotalRate   code = 27
	codeMaxDuration code = 37
	codeMessage     code = 110
	codeParams      code = 114
	codeResults     code = 117
	codeTerminated  code = 119
	codeAuth        code = 142
	codeNoMessage   code = 144
	codeStream      code = 203
	codeStreamID    code = 208
)

var codeText = map[code]string{
	codeDuration: "test duration is out of range", codeStreams: "number of streams is out of range",
	codeBlock: "block size is out of range", codeWindow: "socket buffer size is out of range",
	codeMSS: "MSS is out of range", codeOmit: "omit is out of range", codeNoSCTP: "no SCTP",
	codeUDPBlock: "UDP block size is out of range", codeTOS: "TOS is out of range",
	codeTotalRate: "total rate is above the server's limit", codeMaxDuration: "test is longer than the server allows",
	codeMessage: "unknown control message", codeParams: "parameters are not valid", codeResults: "results are not valid",
	codeTerminated: "ended by the client", codeAuth: "not allowed here", codeNoMessage: "nothing came for too long",
	codeStream: "stream could not be connected", codeStreamID: "unknown stream id",
}

func (c code) String() string {
	if t, ok := codeText[c]; ok {
		return t
	}
	return fmt.Sprintf("error %d", int32(c))
}

const (
	cookieBytes     = 37 // 36 characters and a NUL
	maxParamsBytes  = 8 << 10
	maxResultsBytes = 64 << 10 // of a client; 128 streams need about 20 KiB
	// A server's results may carry its own report as text and as JSON.
	maxServerResultsBytes = 16 << 20
)

type cookie [cookieBytes]byte

const cookieLetters = "abcdefghijklmnopqrstuvwxyz234567" // RFC 4648 base 32, in lower case

func newCookie() cookie {
	var c cookie
	_, _ = rand.Read(c[:36]) // never fails (crypto/rand)
	for i := range 36 {
		c[i] = cookieLetters[c[i]%32]
	}
	return c
}

// valid holds for what iperf3 clients of all versions send: 36 printable characters. An HTTP request is none.
func (c cookie) valid() bool {
	for _, b := range c[:36] {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return true
}

var errTooLong = errors.New("announced length is beyond the limit")

// control is a control connection. Each call that waits for the peer takes its own deadline and ends with the context, for
// for whose end somebody must have called interrupt.
type control struct {
	ctx  context.Context
	conn net.Conn
	in   *bufio.Reader
}

func newControl(ctx context.Context, conn net.Conn) *control {
	return &control{ctx: ctx, conn: conn, in: bufio.NewReaderSize(conn, 4096)}
}

// interrupt ends what waits for the connection to be read when ctx ends. When the returned function has returned, it does not
// any more.
func (c *control) interrupt(ctx context.Context) (leave func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.conn.SetReadDeadline(closeTime)
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// closeTime is a deadline that ends what waits for a connection at once.
var closeTime = time.Unix(1, 0)

// deadline is the zero time, no deadline, for a duration of 0.
func deadline(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

func (c *control) readWithin(d time.Duration) error {
	if err := c.conn.SetReadDeadline(deadline(d)); err != nil {
		return err
	}
	if err := c.ctx.Err(); err != nil { // it may have ended before the deadline was set
		return err
	}
	return nil
}

func (c *control) readState(d time.Duration) (state, error) {
	if err := c.readWithin(d); err != nil {
		return 0, err
	}
	return readState(c.in)
}

func readState(r io.ByteReader) (state, error) {
	b, err := r.ReadByte()
	return state(b), err
}

func (c *control) readBlob(d time.Duration, limit int) ([]byte, error) {
	if err := c.readWithin(d); err != nil {
		return nil, err
	}
	return readBlob(c.in, limit)
}

// readBlob reads a length and as many bytes. The length is checked before anything is allocated.
func readBlob(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errTooLong, n, limit)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

const writeTime = 5 * time.Second // a control message fits any socket buffer; whoever does not take it is gone

func (c *control) write(b []byte) error {
	if err := c.conn.SetWriteDeadline(deadline(writeTime)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

func (c *control) writeState(s ...state) error {
	b := make([]byte, len(s))
	for i := range s {
		b[i] = byte(s[i])
	}
	return c.write(b)
}

func (c *control) writeBlob(body []byte) error {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	return c.write(append(b, body...))
}

func (c *control) writeError(e code) error {
	b := []byte{byte(stateServerError&0x7f) | 0x80}
	b = binary.BigEndian.AppendUint32(b, uint32(e))
	return c.write(binary.BigEndian.AppendUint32(b, 0))
}

// readError reads what follows SERVER_ERROR.
func (c *control) readError(d time.Duration) (code, error) {
	if err := c.readWithin(d); err != nil {
		return 0, err
	}
	var b [8]byte
	if _, err := io.ReadFull(c.in, b[:]); err != nil {
		return 0, err
	}
	return code(binary.BigEndian.Uint32(b[:4])), nil
}
