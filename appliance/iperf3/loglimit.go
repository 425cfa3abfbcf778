package iperf3

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

const (
	logEvery = 10 * time.Second // one line a peer
	logPeers = 256              // that are told apart
)

// logLimiter writes at most one line about a peer in logEvery, so that a flood of connections is no flood of lines.
type logLimiter struct {
	log  *slog.Logger
	mu   sync.Mutex
	last map[netip.Addr]time.Time
	held map[netip.Addr]int
}

func newLogLimiter(log *slog.Logger) *logLimiter {
	return &logLimiter{log: log, last: map[netip.Addr]time.Time{}, held: map[netip.Addr]int{}}
}

func (l *logLimiter) pass(peer netip.Addr) (held int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last[peer]) < logEvery {
		l.held[peer]++
		return 0, false
	}
	if len(l.last) >= logPeers {
		for p, t := range l.last {
			if now.Sub(t) >= logEvery {
				delete(l.last, p)
				delete(l.held, p)
			}
		}
		if len(l.last) >= logPeers {
			return 0, false
		}
	}
	held = l.held[peer]
	delete(l.held, peer)
	l.last[peer] = now
	return held, true
}

func (l *logLimiter) info(peer netip.Addr, msg string, args ...any) {
	l.write(slog.LevelInfo, peer, msg, args)
}
func (l *logLimiter) warn(peer netip.Addr, msg string, args ...any) {
	l.write(slog.LevelWarn, peer, msg, args)
}

func (l *logLimiter) write(level slog.Level, peer netip.Addr, msg string, args []any) {
	held, ok := l.pass(peer)
	if !ok {
		return
	}
	if peer.IsValid() {
		args = append(args, "peer", peer)
	}
	if held > 0 {
		args = append(args, "more_like_it", held)
	}
	l.log.Log(context.Background(), level, msg, args...)
}
