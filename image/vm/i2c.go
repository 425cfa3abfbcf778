package vm

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
)

// I2C messages of virtio (virtio 1.2, section 5.18): a head of 8 bytes, a buffer for the one direction or the other, and a
// byte for the outcome.
const (
	featureZeroLength = 1 << 0 // VIRTIO_I2C_F_ZERO_LENGTH_REQUEST; the driver demands it
	i2cRead           = 1 << 1 // VIRTIO_I2C_FLAGS_M_RD
	i2cGood, i2cError = 0, 1
)

// serveI2C is the bus behind the guest's I2C controller. after is called when a device has taken a message.
func serveI2C(l *net.UnixListener, device io.ReadWriter, address uint16, after func(), log *slog.Logger) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return // closed
		}
		v := &vhost{features: featureZeroLength, handle: func(r request) int { return i2cMessage(r, device, address, after) }}
		if err := v.serve(c); err != nil {
			log.Error("the virtual I2C bus is gone", "error", err)
		}
		_ = c.Close() // the peer is gone
	}
}

// i2cMessage answers one message and returns how many bytes of the guest's memory were written.
func i2cMessage(r request, device io.ReadWriter, address uint16, after func()) int {
	if len(r.in) == 0 || len(r.in[len(r.in)-1]) == 0 {
		return 0 // nowhere to put the outcome
	}
	status := r.in[len(r.in)-1]
	status[0] = i2cError
	if len(r.out) == 0 || len(r.out[0]) < 8 || binary.LittleEndian.Uint16(r.out[0])>>1 != address {
		return 1 // nobody acknowledges
	}
	written := 1
	if binary.LittleEndian.Uint32(r.out[0][4:])&i2cRead != 0 {
		for _, buf := range r.in[:len(r.in)-1] {
			n, err := device.Read(buf)
			if err != nil {
				return written
			}
			written += n
		}
	} else {
		var message []byte // one message is one write, however the guest's memory is cut up
		for _, buf := range r.out[1:] {
			message = append(message, buf...)
		}
		if _, err := device.Write(message); err != nil {
			return written
		}
		after()
	}
	status[0] = i2cGood
	return written
}
